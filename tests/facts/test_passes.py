"""The passes of ranks: what worker processes have fetched for them, and what goes on beside what."""

from __future__ import annotations

import array

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import passes_in_one_epoch, passes_of
from ddpcheck.judging.world import Process
from tests.judging.loaded import PLAIN, STREAM, digest, loader, through
from tests.judging.written import loaded, rank, step, world


def fetched(number, contents, worker=0, indices=None, **more):
    fields = {"loader": 0, "pass_": 0, "base_seed": 7, "labels": b"", "samples": len(contents), **more}
    places = array.array("q", indices).tobytes() if indices is not None else b""
    prints = b"".join(map(digest, contents))
    return ev.WorkerFetch, {**fields, "worker": worker, "number": number, "indices": places, "prints": prints}


def with_workers(own, *records):
    """A rank whose samples another process has fetched."""
    made = rank(0, own)
    worker = Process("worker")
    worker.add([kind(n=place, at=float(place), **fields) for place, (kind, fields) in enumerate(records)])
    made.workers.append(worker)
    return made


def without_contents(made):
    """The same, as the process sees it that hands batches out."""
    return [(kind, {**fields, "prints": b""} if kind is ev.Batch else fields) for kind, fields in made]


def prints(made):
    (one,) = passes_of(made)
    return [sample.print_ for sample in one.samples], one.whole


@pytest.mark.parametrize("afresh", [False, True])
def test_samples_that_workers_fetch_are_known_by_index(afresh):
    """Whichever worker fetched them, in batches of whichever order; one that was started afresh knows the seed only."""
    own = [loader(), *without_contents(through([3, 1, 2, 0], batch=2, base_seed=7))]
    more = {"loader": None} if afresh else {}
    ones = fetched(0, "dc", 1, [3, 1], **more), fetched(0, "ba", 0, [2, 0], **more), fetched(1, "z", 0, [9], **more)
    assert prints(with_workers(own, *ones)) == ([*map(digest, "dcba")], True)


def test_a_sample_that_is_drawn_twice_may_look_otherwise():
    """What was read at an index comes in its order."""
    own = [loader(), *without_contents(through([3, 3], batch=1))]
    assert prints(with_workers(own, fetched(0, "a", 0, [3]), fetched(1, "b", 0, [3])))[0] == [*map(digest, "ab")]


def test_workers_take_turns_with_a_stream():
    """A worker that has no more is left out; how many rows were made of the samples does not matter."""
    own = [loader(**STREAM), *without_contents(through(None, contents=range(6), batch=2))]
    ones = fetched(0, "ab", 0), fetched(1, "cd", 0), fetched(2, "e", 0), fetched(0, "xy", 1)
    (one,) = passes_of(with_workers(own, *ones))
    assert [[s.print_ for s in its] for its in one.samples_of_batches] == [
        [*map(digest, its)] for its in ("ab", "xy", "cd")
    ]
    packed = [loader(**STREAM), *without_contents(through(None, contents=range(8), batch=2))]
    assert prints(with_workers(packed, *ones)) == ([*map(digest, "abxycde")], True)


def test_a_stream_that_is_broken_off_when_workers_are_at_an_end():
    """Who was next is not known, nor what was left."""
    own = [loader(**STREAM), *without_contents(through(None, contents=range(8), batch=2, exhausted=False))]
    ones = fetched(0, "ab", 0), fetched(0, "xy", 1), fetched(1, "z", 1), fetched(2, "w", 1)
    known, whole = prints(with_workers(own, *ones))
    assert (known, whole) == ([*map(digest, "abxy")], False)


def side_by_side(second, between=(), steps=(0, 0), first=(), **more):
    """Two passes of one rank that train, over one dataset."""
    one = through(range(16), exhausted=False, **dict(first))
    other = through(range(16), of=1, **{"exhausted": False, "line": 21, **more})
    made = [loader(**PLAIN), loader(**PLAIN, **{"loader": 1, **second})]
    made += [*one[:2], step(9, optimizer=steps[0]), *one[2:], *between]
    made += [*other[:2], step(9, optimizer=steps[1], number=1), *other[2:]]
    return len(passes_in_one_epoch(world(made)))


def test_passes_that_share_an_epoch():
    """One after the other, both left before their end."""
    assert side_by_side({}) == 1


@pytest.mark.parametrize(("second", "more"), [
    ({"dataset_id": 2}, {}), ({}, {"exhausted": True}), ({}, {"between": [loaded("optimizer", 9)]}),
    ({}, {"steps": (0, 1)}), ({}, {"epoch": 1}), ({"loader": 0}, {"of": 0, "number": 1}), ({}, {"trained": False}),
])  # fmt: skip
def test_passes_that_share_nothing(second, more):
    """Other data, an epoch of its own, another model, a run that was taken up again; or one pass of one loader."""
    of = more.pop("of", 1)
    if of == 0:
        made = [loader(**PLAIN), *through(range(16), exhausted=False), *through(range(16), number=1, exhausted=False)]
        assert passes_in_one_epoch(world(made)) == []
    else:
        assert side_by_side(second, **more) == 0


def test_loaders_that_were_seeded_alike():
    """Of two with one base seed, it is not known for which a process that was started afresh has fetched."""
    own = [loader(), *without_contents(through([0, 1], batch=2, base_seed=7))]
    own += [loader(loader=1), *without_contents(through([0, 1], of=1, batch=2, base_seed=7))]
    made = with_workers(own, fetched(0, "ab", 0, [0, 1], loader=None), fetched(0, "cd", 0, [0, 1], loader=None))
    assert [one.print_ for its in passes_of(made) for one in its.samples] == [None] * 4


@pytest.mark.parametrize(("stream", "ends", "number"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_a_loader_that_is_begun_anew(stream, ends, number):
    """Of a stream, what comes later is read by no pass; unless there is a pass that goes to its end."""
    made = [loader(**(STREAM if stream else PLAIN))]
    for turn in range(2):
        one = through(None, number=turn, contents=range(16), exhausted=False, epoch=None)
        made += [*one[:-1], step(9, number=turn), one[-1]]
    one = through(None, number=2, contents=range(40), epoch=None)
    made += [*one[:-1], step(9, number=2), one[-1]] if ends else []
    assert len(passes_in_one_epoch(world(made))) == number


def test_a_loader_within_its_own_loop():
    """All pairs of batches, say: the inner passes are no other half of the outer one."""
    outer = through(range(16), exhausted=False)
    inner = through(range(16), number=1)
    made = [loader(**PLAIN), *outer[:2], *inner[:-1], step(9), inner[-1], *outer[2:]]
    assert passes_in_one_epoch(world(made)) == []
