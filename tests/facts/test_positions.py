"""Passes that go on after a load: what they leave out of what had been read when the state was saved."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition import run
from ddpcheck.facts import positions
from ddpcheck.facts.positions import UNKNOWN
from ddpcheck.relations import once
from tests.judging.loaded import OWN, loader, through
from tests.judging.own_reductions import BOTH, optimizer, stepped
from tests.judging.written import STEP, exchanged, world

SIZE = 96
ORDER = list(range(SIZE))


def resumed_world(skipped, taken=40, kept=None, saves=1, loaded=True, seed=0, trained=True, **more):
    """Two ranks that read 40 samples together, save, load, and go on with what is left of the order."""
    order = ORDER[seed:] + ORDER[:seed]

    def of(rank):
        first = through(
            ORDER[:taken][rank::2], exhausted=more.get("ended", False), trained=trained, batch=more.get("batch", 4)
        )
        first[1:1] = more.get("steps", ())
        saved = [(ev.SaveBegan, {"path": "last.pt"})] * saves if rank == 0 else []
        fields = {"owner": "optimizer", "kind": "SGD", "missing": [], "unexpected": [], "total": 1, "strict": True}
        loads = [(ev.StateLoaded, {**fields, "site": 9})] if loaded else []
        rest = order[skipped:] if kept is None else kept
        second = through(
            rest[rank::2],
            number=1,
            exhausted=more.get("exhausted", True),
            idle=more.get("idle", 0),
            epoch=more.get("epoch", 0),
        )
        return [loader(**{**OWN, "size": SIZE}), *first, *saved, *loads, *second]

    return world(of(0), of(1))


def judged(skipped, **more):
    made = resumed_world(skipped, **more)
    return once.positions(positions.of(made))


def unknown(skipped, **more):
    return positions.unknown(resumed_world(skipped, **more))


@pytest.mark.parametrize(("skipped", "again", "cause"), [(20, 20, "one rank"), (16, 24, "number")])
def test_another_position(skipped, again, cause):
    """Too little is left out."""
    (deviation,) = judged(skipped)
    assert (deviation.ranks, deviation.cause) == ((0, 1), cause)
    texts = {"read": 40, "again": again, "left": skipped, "unread": 0}
    assert {key: deviation.texts[key] for key in texts} == texts


@pytest.mark.parametrize(("order", "more", "cause"), [
    ([], {}, ""), ([*range(30, 96), *range(30)], {}, "order"), ([*range(30, 96), *range(30)], {"epoch": 1}, "epoch"),
])  # fmt: skip
def test_a_loop_that_hands_out_what_it_skips(order, more, cause):
    """The first batches are left alone, to come to the position: they have to be those that had been read."""
    found = judged(0, kept=order or ORDER, idle=5, **more)
    assert [one.cause for one in found] == ([cause] if cause else [])


def test_as_many_samples_of_another_order():
    """A sampler that goes on where the ranks stopped, in the order of another epoch."""
    (deviation,) = judged(40, seed=30)
    assert (deviation.cause, deviation.texts["unread"], deviation.texts["again"]) == ("order", 30, 30)


@pytest.mark.parametrize(("skipped", "often", "cause"), [
    (20, 2, "one rank or updates"), (10, 4, "updates"), (20, 4, "one rank"), (16, 2, "number"),
])  # fmt: skip
def test_updates_that_are_counted_for_batches(skipped, often, cause):
    """A step is made of several batches: as many as there are ranks, or more."""
    steps = [(ev.Step, {**STEP, "site": 9, "number": n}) for n in range(20 // often)]
    (deviation,) = judged(skipped, steps=steps, batch=1)
    assert deviation.cause == cause


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


def test_another_fold():
    """What is left out had been read, and not at first: a part of the data that is held out from now on."""
    assert judged(0, kept=[p for p in ORDER if p not in range(12, 32)]) == []


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
    judged = run.judge(made)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), UNKNOWN)


@pytest.mark.parametrize(("skipped", "cause"), [(40, ""), (36, ""), (16, "number"), (0, "")])
def test_a_second_load_in_one_epoch(skipped, cause):
    """What was read before the first load counts as well: a position may be counted from there by mistake."""

    def of(rank):
        fields = {"owner": "optimizer", "kind": "SGD", "missing": [], "unexpected": [], "total": 1, "strict": True}
        saved = [(ev.SaveBegan, {"path": "last.pt"})] if rank == 0 else []
        made = [loader(**{**OWN, "size": SIZE})]
        for number, part in enumerate((ORDER[:20], ORDER[20:40], ORDER[skipped:])):
            made += through(part[rank::2], number=number, exhausted=number == 2, batch=2)
            made += [*saved, (ev.StateLoaded, {**fields, "site": 9})] if number < 2 else []
        return made

    found = once.positions(positions.of(world(of(0), of(1))))
    assert [one.cause for one in found] == ([cause] if cause else [])
    assert all((one.texts["read"], one.texts["left"], one.texts["unread"]) == (40, 16, 0) for one in found)
