"""R5: what is read again, twice, or not at all, over passes written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import loops, passes_in_one_epoch
from ddpcheck.judging.world import Process
from ddpcheck.relations import once
from tests.judging.loaded import PLAIN, STREAM, digest, loader, through
from tests.judging.written import step, world

EVERY = list(range(16))


def repeated(second, contents=None, together=True, ranks=2, **more):
    """The deviations found for two loaders over one dataset, trained on in turn or one after the other."""
    one, other = through(EVERY, **more), through(second, of=1, line=21, contents=contents, **more)
    made = [loader(**PLAIN), loader(**PLAIN, loader=1)]
    if together:
        made += [record for pair in zip(one[:-1], other[:-1], strict=True) for record in pair]
        made += [step(9), one[-1], other[-1]]
    else:
        made += [*one[:-1], step(9), one[-1], *other[:-1], step(9, number=1), other[-1]]
    return once.repetitions(passes_in_one_epoch(world(*[made] * ranks)))


def test_one_order_that_is_dealt_out_twice():
    """Two loaders with one seed: the second one gives what the first gives."""
    (found,) = repeated(EVERY)
    assert (found.pattern, found.cause, found.ranks, found.times) == ("again", "side by side", (0, 1), 1)
    assert (found.texts["samples"], found.line.line) == (16, 21)


def test_a_pass_that_is_begun_anew_by_another_loader():
    """Both are left before their end, in one epoch: the rest of the order is read by neither."""
    (found,) = repeated(EVERY, together=False, exhausted=False)
    assert found.cause == "begun anew"


@pytest.mark.parametrize("more", [
    {"second": EVERY[::-1]}, {"second": EVERY, "contents": [f"view {i}" for i in EVERY]},
    {"second": EVERY, "together": False},
], ids=["another order", "another view", "a pass each"])  # fmt: skip
def test_what_is_no_repetition(more):
    """Another order, the same samples in another form, and one pass after another."""
    assert repeated(**more) == []


def test_few_samples_may_be_equal_by_chance():
    """Data may hold a sample many times."""
    assert repeated(EVERY, contents=[i % 3 for i in EVERY]) == []


def empties(*each, ranks=2, **more):
    """The deviations found for passes of a loop, each with the samples that it gives."""
    made = [loader(**more)]
    for number, (indices, more) in enumerate(each):
        made += through(indices, number=number, **{"sampler_length": 16, **more})
    return once.empty_passes([one for one in loops(world(*[made] * ranks)) if one.training], 2)


FULL = (EVERY, {"epoch": 0})


def test_a_pass_without_samples():
    """The others had some."""
    (found,) = empties(FULL, ([], {"epoch": 1}), (EVERY, {"epoch": 2}))
    assert (found.pattern, found.cause, found.ranks, found.times) == ("nothing", "", (0, 1), 1)


def test_a_loader_that_drops_all_it_has():
    """Its only batch is not full."""
    (found,) = empties(([], {"sampler_length": 3}), ([], {"sampler_length": 3}), size=3, drop_last=True)
    assert (found.cause, found.times) == ("dropped", 2)


def test_a_position_at_the_end_that_another_run_has_saved():
    """Dropping batches that are not full explains nothing where the sampler has more than one."""
    assert empties(([], {}), FULL, drop_last=True) == []


@pytest.mark.parametrize("each", [
    [FULL, ([], {"epoch": 0}), (EVERY, {"epoch": 1})], [FULL, ([], {"epoch": 1, "exhausted": False})], [FULL, FULL],
    [FULL, ([], {"epoch": 1, "sampler_length": 0})], [FULL, ([], {"epoch": 1, "sampler_length": None})],
    [([], {}), FULL],
], ids=["the rest of an epoch", "a look", "samples", "none to give", "unknown", "the rest of another run"])  # fmt: skip
def test_passes_that_may_be_empty(each):
    """What is left of an epoch that was read to its end, here or in another run; samplers that have none to give."""
    assert empties(*each) == []


def test_data_that_hold_nothing():
    """No samples in the dataset, none in a pass."""
    assert empties(FULL, ([], {"sampler_length": 0}), size=0) == []
    assert empties(FULL, ([], {"epoch": 1}), ranks=1) == []


def workers(*each, ranks=2):
    """The deviations found for a stream, of which each worker process reads these samples."""
    own = [loader(**STREAM), *through(None, contents=range(sum(map(len, each))), batch=4)]
    own = [(kind, {**fields, "prints": b""} if kind is ev.Batch else fields) for kind, fields in own]
    made = world(*[own] * ranks)
    for rank in made:
        process = Process("workers")
        for worker, contents in enumerate(each):
            fields = {"loader": 0, "pass_": 0, "base_seed": 7, "number": 0, "indices": b"", "labels": b""}
            prints = b"".join(map(digest, contents))
            more = {"worker": worker, "samples": len(contents), "prints": prints}
            process.add([ev.WorkerFetch(n=worker, at=0.0, **fields, **more)])
        rank.workers.append(process)
    return once.workers_alike([one for one in loops(made) if one.training])


def test_workers_that_read_alike():
    """Each gives what the other gives."""
    (found,) = workers(EVERY, EVERY)
    assert (found.pattern, found.ranks, found.times) == ("workers", (0, 1), 1)
    assert found.texts == {"surplus": 16, "samples": 32, "workers": 2}


@pytest.mark.parametrize("each", [
    (EVERY[:8], EVERY[8:]), (EVERY[:9], EVERY[8:]), (EVERY,), (EVERY[:8] * 2, EVERY[:8] * 2),
], ids=["shares", "evened out", "one", "samples that come often"])  # fmt: skip
def test_workers_that_share_a_stream(each):
    """What evens them out, and data that hold samples several times, are no fault."""
    assert workers(*each) == []
