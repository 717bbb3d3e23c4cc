"""Functions of the user that raise, or that a rank did not come to: who is told of."""

from __future__ import annotations

from ddpcheck.evidence.recorded_save import Recorded
from ddpcheck.evidence.training_state import Loaded
from tests.judging.checkpoint_facts import failure, joined, judged


def test_own_failures_before_felt_ones() -> None:
    """A rank that has only lost its peer is not at fault; where all have, they are told."""
    own, felt = failure("no space", doing="save"), failure("Connection closed by peer", doing="save", reaction=True)
    for check, kind in (("checkpoint-single-writer", Recorded), ("checkpoint-read-after-write", Recorded)):
        (finding,) = judged(check, kind(evidence=joined(0), failure=felt), kind(evidence=joined(1), failure=own))
        assert (finding.check, finding.ranks) == ("rank-failure", (1,))
    (finding,) = judged("checkpoint-load-complete", Loaded(failure=felt), Loaded(failure=felt))
    assert finding.ranks == (0, 1)


def test_ranks_that_did_not_come() -> None:
    """One rank cannot go on and the other is stuck elsewhere: what came is judged."""
    facts = Loaded(failure=failure("invalid load key", file="m.pt", state="not a checkpoint"))
    for where in (0, 1):
        come = [facts if rank == where else None for rank in range(2)]
        (finding,) = judged("checkpoint-load-complete", *come)
        assert finding.ranks == (where,)
        assert "no file that torch.save has written" in finding.cause
    own = Recorded(evidence=joined(1), failure=failure("no space", doing="save"))
    (finding,) = judged("checkpoint-single-writer", None, own)
    assert finding.ranks == (1,)
