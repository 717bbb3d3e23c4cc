"""docs/properties.md: its programs are tests, and end as it says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.inner import InnerProject
from tests.properties.examples_project import CONFTEST, HEAD

PAGE = Path(__file__).parents[2] / "docs" / "properties.md"


def page_as_tests() -> dict[str, str]:
    """The page's programs: the first as it is, the others with the imports that it leaves out."""
    first, *others = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    parts = [part for part in others if "ShardedCache" not in part]
    spread = [part for part in parts if "torch.distributed.tensor" in part]
    plain = [part for part in parts if part not in spread]
    return {
        "test_split.py": first,
        "test_page.py": "\n".join([HEAD, *plain]),
        "test_meshes.py": "\n".join([HEAD, *spread]),
    }


@pytest.mark.long
def test_the_page(project: InnerProject) -> None:
    """docs/properties.md: its programs end as it says, with the words that it shows."""
    project.write("conftest.py", CONFTEST)
    for name, text in page_as_tests().items():
        project.write(name, text)
    ran = project.run()
    shown = re.search(r"^E       ddpcheck.*?^E   \)$", PAGE.read_text(), re.M | re.S)
    assert shown is not None
    expected = [line for line in shown[0].splitlines() if " where " not in line]
    text = ran["test_every_sample_is_taken"].text.replace(
        "Falsifying example", "Failing test case"
    )  # in older versions
    assert [line for line in text.splitlines() if line in expected] == expected
    hung = ran["test_an_epoch_ends"].text
    assert hung.startswith("timed out after 1 s with rank 1 still running")
    assert "    batches=(0, 1),\n" in hung
    for name in ("test_every_sample_is_somewhere", "test_batches", "test_a_step", "test_my_backend[2ranks]"):
        assert ran[name].outcome == "passed", ran[name].text
    if importlib.util.find_spec("torch.distributed.tensor.placement_types") is not None:  # torch 2.5 and later
        for name in ("test_what_is_spread_comes_back", "test_copies_stay_copies"):
            assert ran[name].outcome == "passed", ran[name].text
