"""What is looked at trains as it would have: compiled, with hooks, modes, graphs of graphs, and what is copied."""

from __future__ import annotations

import pytest

from tests.command.differing import DDPCHECK, TORCHRUN, differences, run
from tests.command.surroundings import Surrounding
from tests.facts.spread import PROGRAM

ODD = Surrounding("odd trainings", (PROGRAM.with_name("odd_trainings.py"),), ranks=2, in_order=False)


@pytest.mark.long
def test_odd_trainings_end_alike(tmp_path) -> None:
    """To the last bit, without a warning, and nothing is compiled once more."""
    theirs, ours = run(TORCHRUN, ODD, tmp_path), run(DDPCHECK, ODD, tmp_path)
    assert differences(theirs, ours) == []
    assert (theirs.code, theirs.out.count(b"\n")) == (0, 18), theirs.err
