"""The judge of planted kills, over evidence written by hand."""

from __future__ import annotations

import pytest

from ddpcheck.evidence.planted_kills import Kill, Killed
from tests.judging.checkpoint_facts import judged


def test_kills_that_lose_nothing() -> None:
    """Old or new, whole, is held."""
    tried = Killed(kills=(Kill(moment="early", left="old"), Kill(moment="late", left="new")))
    assert judged("checkpoint-atomic-save", tried, Killed()) == ()


@pytest.mark.parametrize("left", ["other", "raised"])
def test_a_kill_that_loses_both(left: str) -> None:
    """Neither, or an error at the load, is lost: with the rank, the moment and how many of them."""
    lost = Kill(moment="after 5 of 9 bytes of a.pt", left=left, detail="EOFError")  # type: ignore[arg-type]
    (finding,) = judged("checkpoint-atomic-save", Killed(kills=(Kill(moment="early", left="old"), lost)), Killed())
    assert (finding.severity, finding.ranks, finding.count) == ("error", (0,), 1)
    assert "1 kill of 2" in finding.found
    assert "killed after 5 of 9 bytes of a.pt" in finding.found


def test_kills_that_could_not_be_planted() -> None:
    """Nothing was tried: a warning with the reason, and never a verdict."""
    for facts in ((Killed(not_tried="CUDA does not work"), Killed()), (Killed(), Killed())):
        (finding,) = judged("checkpoint-atomic-save", *facts)
        assert finding.severity == "warning"
    assert finding.found == "none: no rank that writes a file"
