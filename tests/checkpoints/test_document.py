"""The example of docs/checkpoints.md: it holds as it stands, and tells what was taken out of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.inner import InnerProject

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
TAKEN_OUT = '    training.optimizer.load_state_dict(state["optimizer"])\n'


@pytest.mark.long
def test_the_example(project: InnerProject) -> None:
    """Whole it passes; without the optimizer's state it fails with the text that the page shows."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert TAKEN_OUT in code
    project.write("test_whole.py", code)
    project.write("test_less.py", code.replace("test_a_resume", "test_less").replace(TAKEN_OUT, ""))

    ran = project.run()

    assert ran["test_a_resume"].outcome == "passed"
    seen = ran["test_less"].text
    (shown,) = re.findall(r"```\n(E  .*?)```", PAGE.read_text(), flags=re.DOTALL)
    for line in shown.splitlines():
        for part in line.split("…"):
            assert part.removesuffix(" (") in seen
