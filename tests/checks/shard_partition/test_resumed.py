"""Passes that go on after a load: what they leave out of what had been read when the state was saved."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition import resumed, run
from ddpcheck.checks.shard_partition.resumed import UNKNOWN
from ddpcheck.facts.passes import loops
from tests.judging.loaded import OWN, loader, through
from tests.judging.own_reductions import BOTH, optimizer, stepped
from tests.judging.written import exchanged, world

SIZE = 96
ORDER = list(range(SIZE))


def resumed_world(skipped, taken=40, kept=None, saves=1, loaded=True, seed=0, trained=True, **more):
    """Two ranks that read 40 samples together, save, load, and go on with what is left of the order."""
    order = ORDER[seed:] + ORDER[:seed]

    def of(rank):
        first = through(ORDER[:taken][rank::2], exhausted=more.get("ended", False), trained=trained)
        saved = [(ev.SaveBegan, {"path": "last.pt"})] * saves if rank == 0 else []
        fields = {"owner": "optimizer", "kind": "SGD", "missing": [], "unexpected": [], "total": 1, "strict": True}
        loads = [(ev.StateLoaded, {**fields, "site": 9})] if loaded else []
        rest = order[skipped:] if kept is None else kept
        second = through(rest[rank::2], number=1, exhausted=more.get("exhausted", True))
        return [loader(**{**OWN, "size": SIZE}), *first, *saved, *loads, *second]

    return world(of(0), of(1))


def judged(skipped, **more):
    made = resumed_world(skipped, **more)
    return resumed.judge(made, loops(made))


def unknown(skipped, **more):
    made = resumed_world(skipped, **more)
    return resumed.unknown(made, loops(made))


@pytest.mark.parametrize(("skipped", "found", "cause"), [
    (20, "20 of them to be read again: it leaves out 20", "what one rank has read was counted"),
    (16, "24 of them to be read again: it leaves out 16", "the position that was saved"),
])  # fmt: skip
def test_another_position(skipped, found, cause):
    """Too little is left out."""
    (finding,) = judged(skipped)
    assert (finding.severity, finding.ranks) == ("warning", (0, 1))
    assert "leave out the 40 samples" in finding.expected
    assert finding.found.startswith(found)
    assert finding.cause.startswith(cause)


@pytest.mark.parametrize("skipped", [40, 32, 0, 44, 80])
def test_a_position_that_reads_nothing_again(skipped):
    """What had been read, with or without a batch taken in advance; an epoch that begins anew; more than was read."""
    assert judged(skipped) == []


@pytest.mark.parametrize("more", [{"loaded": False}, {"exhausted": False}, {"saves": 0}])
def test_what_is_no_resume(more):
    """Nothing was loaded or saved between, or the second pass is broken off, too."""
    assert judged(20, **more) == []


def test_other_samples():
    """Of another order, whose first samples had been read by chance in part."""
    assert judged(20, seed=30) == []


def test_batches_that_wait_in_a_queue():
    """How many of those that were taken had been trained on is not known."""
    assert judged(20, trained=False) == []


@pytest.mark.parametrize("skipped", [40, 32])
def test_a_pass_that_is_seen_to_go_on(skipped):
    """It leaves out just what had been read when the state was saved."""
    assert unknown(skipped) == ""


@pytest.mark.parametrize(
    "more",
    [{}, {"saves": 0}, {"exhausted": False}, {"ended": True, "saves": 0}],
    ids=["anew", "no save", "cut", "other"],
)
def test_a_pass_that_may_read_samples_again(more):
    """The loop may skip what had been read, or read it again: that is not on record, nor what another run has saved."""
    assert unknown(0, **more) == UNKNOWN


@pytest.mark.parametrize("more", [{"loaded": False}, {"ended": True, "taken": SIZE}], ids=["no load", "between passes"])
def test_a_pass_that_has_nothing_to_go_on_from(more):
    """Nothing was loaded, or the state was saved when a pass was over."""
    assert unknown(0, **more) == ""


def test_what_was_read_before_a_load_is_not_held():
    """Each pass for itself has no sample twice."""
    made = resumed_world(0)
    reduces = [optimizer(), exchanged(0, *BOTH), stepped("gh")]
    for rank in made:
        rank.process.add([kind(n=900 + n, at=90.0, **fields) for n, (kind, fields) in enumerate(reduces)])
    said = run.judge(made)
    assert (said.checked, said.findings, said.skipped_because) == (0, (), UNKNOWN)
