"""Passes that go on after a load: what they leave out of what had been read when the state was saved."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition import resumed
from ddpcheck.judging.loader_passes import loops
from tests.judging.loaded import OWN, loader, through
from tests.judging.written import world

SIZE = 96
ORDER = list(range(SIZE))


def judged(skipped, taken=40, kept=None, saves=1, loaded=True, exhausted=True, seed=0, trained=True):
    """Two ranks that read 40 samples together, save, load, and go on with what is left of the order."""
    order = ORDER[seed:] + ORDER[:seed]

    def of(rank):
        first = through(ORDER[:taken][rank::2], exhausted=False, trained=trained)
        saved = [(ev.SaveBegan, {"path": "last.pt"})] * saves if rank == 0 else []
        fields = {"owner": "module", "kind": "Net", "missing": [], "unexpected": [], "total": 1, "strict": True}
        loads = [(ev.StateLoaded, {**fields, "site": 9})] if loaded else []
        rest = order[skipped:] if kept is None else kept
        second = through(rest[rank::2], number=1, exhausted=exhausted)
        return [loader(**{**OWN, "size": SIZE}), *first, *saved, *loads, *second]

    made = world(of(0), of(1))
    return resumed.judge(made, loops(made))


@pytest.mark.parametrize(("skipped", "found", "cause"), [
    (20, "20 of them to be read again: it leaves out 20", "what one rank has read was counted"),
    (16, "24 of them to be read again: it leaves out 16", "the position that was saved"),
])  # fmt: skip
def test_another_position(skipped, found, cause):
    """Too little is left out."""
    times, (finding,) = judged(skipped)
    assert times == 1
    assert (finding.severity, finding.ranks) == ("warning", (0, 1))
    assert "leave out the 40 samples" in finding.expected
    assert finding.found.startswith(found)
    assert finding.cause.startswith(cause)


@pytest.mark.parametrize("skipped", [40, 32, 0, 44, 80])
def test_a_position_that_reads_nothing_again(skipped):
    """What had been read, with or without a batch taken in advance; an epoch that begins anew; more than was read."""
    assert judged(skipped) == (1, [])


@pytest.mark.parametrize("more", [{"loaded": False}, {"exhausted": False}, {"saves": 0}])
def test_what_is_no_resume(more):
    """Nothing was loaded or saved between, or the second pass is broken off, too."""
    assert judged(20, **more) == (0, [])


def test_other_samples():
    """Of another order, whose first samples had been read by chance in part."""
    assert judged(20, seed=30) == (1, [])


def test_batches_that_wait_in_a_queue():
    """How many of those that were taken had been trained on is not known."""
    assert judged(20, trained=False) == (0, [])
