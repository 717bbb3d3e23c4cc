"""Copies of a dataset in worker processes, and what the program has changed in its own since."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts import worker_copies
from ddpcheck.judging.world import Process
from ddpcheck.relations import once
from tests.judging.loaded import loader, through
from tests.judging.written import world


def values(number, worker=None, loader=0, base_seed=7, **held):
    given = {"loader": loader, "pass_": number, "worker": worker, "base_seed": base_seed}
    return ev.DatasetValues, {**given, "values": {name: bytes([value]) * 8 for name, value in held.items()}}


def outdated(own, *workers):
    """What is out of date in three passes, by what the program's dataset held at each, and those of workers."""
    passes = [one for number in range(3) for one in through(range(8), number=number, base_seed=7)]
    made = world([loader(workers=len(workers), dataset="Texts"), *own, *passes])
    for records in workers:
        worker = Process("worker")
        worker.add([kind(n=place, at=float(place), **fields) for place, (kind, fields) in enumerate(records)])
        made.ranks[0].workers.append(worker)
    return worker_copies.of(made)


def each_pass(*held, **more):
    return [values(number, epoch=value, size=3, **more) for number, value in enumerate(held)]


@pytest.mark.parametrize("more", [{}, {"loader": None}], ids=["forked", "afresh"])
def test_a_value_that_the_program_changes(more):
    """The workers go on with the first one."""
    (found,) = outdated(each_pass(0, 1, 2), *[each_pass(0, 0, 0, worker=w, **more) for w in (0, 1)])
    assert (found.rank, found.names, found.times) == (0, ["epoch"], 2)
    assert (found.since.begun.number, found.read.begun.number) == (0, 1)
    (deviation,) = once.old_copies([found])
    assert (deviation.ranks, deviation.times, deviation.texts["names"]) == ((0,), 2, "epoch")


@pytest.mark.parametrize(("own", "workers"), [
    ([0, 0, 0], [0, 0, 0]), ([0, 1, 2], [0, 1, 2]), ([0, 1, 2], [5, 5, 5]), ([0, 1, 2], [0, 3, 4]), ([0, 1, 2], [0]),
], ids=["kept", "shared", "made otherwise", "goes its own way", "unseen"])  # fmt: skip
def test_copies_that_are_not_out_of_date(own, workers):
    """Nothing changed, or all see it; what workers hold is theirs; of later passes nothing is known."""
    assert outdated(each_pass(*own), each_pass(*workers, worker=0)) == []


def test_workers_of_which_one_is_up_to_date():
    """It is not the copy that keeps them."""
    assert outdated(each_pass(0, 1, 2), each_pass(0, 0, 0, worker=0), each_pass(0, 1, 2, worker=1)) == []


def test_workers_of_one_of_two_loaders_that_were_seeded_alike():
    """Started afresh, they know their seed alone: it is not known whose copies they hold."""
    passes = [one for of in (0, 1) for number in range(3) for one in through(range(8), number, of=of, base_seed=7)]
    made = world([loader(workers=1), loader(loader=1, workers=1), *each_pass(0, 1, 2), *passes])
    worker = Process("worker")
    records = each_pass(0, 0, 0, worker=0)
    worker.add([
        kind(n=place, at=float(place), **{**fields, "loader": None}) for place, (kind, fields) in enumerate(records)
    ])  # fmt: skip
    made.ranks[0].workers.append(worker)
    assert worker_copies.of(made) == []
