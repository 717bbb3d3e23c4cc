"""Faults planted into an optimizer that hands out what owners have stepped through stacked buffers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

RIGHT = Path(__file__).parents[2] / "fixtures" / "right" / "muon_stacked_buffers.py"
BACK = "            torch._foreach_copy_(params, list(stack[: len(params)].unbind(0)))"
ROUNDS = "            each = -(-len(params) // world)\n"
LEFT_OUT = """            each = len(params) // world
            for p in params[each * world :]:
                p.sub_(orthogonal(p.grad), alpha=group["lr"])
            params = params[: each * world]
"""


@pytest.mark.parametrize(("replaced", "expected"), [
    ([], []),
    ([(BACK, f"            if rank != 1:\n    {BACK}")], [("parameter-sync", "error", [1])]),
    (
        [(ROUNDS, LEFT_OUT), ('= group["params"], rank', '= group["params"][: each * world], rank')],
        [("parameter-sync", "warning", [0, 1, 2, 3])],
    ),
], ids=["right", "not-taken", "left-over"])  # fmt: skip
def test_a_fault(replaced, expected, ask, tmp_path):
    """One rank that does not copy back; a last round that is left out."""
    text = RIGHT.read_text()
    for before, after in replaced:
        assert before in text
        text = text.replace(before, after)
    script = tmp_path / "train.py"
    script.write_text(text)
    told = json.loads(ask(script, ranks=4))
    assert set(told["exits"].values()) == {0}, told["output"]
    assert [(f["check"], f["severity"], f["ranks"]) for f in told["findings"]] == expected
    assert told["checked"]["parameter-sync"] == 6
