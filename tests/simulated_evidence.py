"""Evidence of trainings that never ran: files of real records, of as many ranks and steps as a test asks for.

``python -m tests.simulated_evidence FOLDER --ranks 32 --steps 10000`` writes one by hand.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ddpcheck import evidence as ev

FOLDER = "/job"
LINES = {
    1: "dist.init_process_group()",
    2: "model = DDP(Net())",
    3: "for x, y in loader:",
    4: "loss = loss_fn(model(x), y)",
    5: "loss.backward()",
    6: "optimizer.step()",
    7: 'torch.save(model.state_dict(), "last.pt")',
    8: "dist.barrier()",
}
"""The program that all of these come from: ``train.py``."""
PARAMETERS = ("net.weight", "net.bias")
ROW = 64
"""Steps whose spans stand in one record."""


class Training(NamedTuple):
    """What is simulated; times are seconds."""

    ranks: int = 2
    steps: int = 100
    epoch: int = 50
    """Steps of an epoch, each of which ends with a save by rank 0 and a barrier."""
    hosts: int = 1
    late: int | None = None
    """A rank whose forwards take longer than the others'."""
    lateness: float = 0.004
    diverges: tuple[int, int] | None = None
    """A rank, and the step from which its gradients are others."""
    hangs: int | None = None
    """A rank that makes no barrier after the last step, in which the others wait for it."""
    seed: int = 0
    only: tuple[int, ...] = ()
    """The ranks that leave evidence; none for all."""


def write(folder: Path, training: Training) -> list[Path]:
    """Write the files of all ranks; as ``Folder`` reads them."""
    files = []
    for rank in training.only or range(training.ranks):
        path = folder / f"host{rank % training.hosts}-{1000 + rank}-1.evidence"
        with open(path, "wb") as opened:
            opened.write(ev.HEADER + ev.OVER)
            for record in records(training, rank):
                opened.write(ev.frame(record))
        files.append(path)
    return files


class _Rank:
    """The records of one rank, with its numbers and its clock."""

    def __init__(self, training: Training, rank: int) -> None:
        self.it, self.rank = training, rank
        self.random = random.Random(training.seed * 1000 + rank)
        self.host = rank % training.hosts
        self.skew = 1000.0 * self.host
        """Each host's monotonic clock began at another time."""
        self.n = 0
        self.now = 10.0
        self.spans: list[tuple[int, float, float, int, int]] = []
        self.calls = 0

    def base(self, at: float | None = None) -> dict[str, float]:
        self.n += 1
        return {"n": self.n, "at": (self.now if at is None else at) + self.skew}

    def span(self, kind: str, start: float, site: int = 0, number: int = 0) -> None:
        self.spans.append((ev.SPAN_KINDS.index(kind), start, self.now, site, number))

    def row(self) -> ev.Spans:
        base = min(span[1] for span in self.spans)
        packed: list[int] = []
        for kind, start, end, site, number in self.spans:
            packed += (kind, int((start - base) * 1e6), int((end - start) * 1e6), site, number)
        self.spans = []
        return ev.Spans(**self.base(), base=base + self.skew, packed=packed)

    def call(self, op: str, site: int, detail: str = "") -> ev.Call:
        self.calls += 1
        return ev.Call(**self.base(), op=op, group="world", number=self.calls, detail=detail, site=site)


def records(training: Training, rank: int) -> Iterator[ev.Record]:
    """What one rank writes down."""
    one = _Rank(training, rank)
    shared = random.Random(training.seed)
    """What all ranks wait for together is the same for all."""
    yield from _beginning(one)
    for step in range(training.steps):
        epoch, place = divmod(step, training.epoch)
        if place == 0:
            yield ev.Pass(**one.base(), loader=0, number=epoch, site=3, epoch=epoch, base_seed=1, grad=True)
        yield from _step(one, shared, step, place)
        if place + 1 == training.epoch or step + 1 == training.steps:
            yield from _epoch_ends(one, epoch, place + 1)
            if training.hangs is not None and step + 1 == training.steps:
                yield from _hang(one)
                return
            yield from _barrier(one, shared)
        if len(one.spans) > 5 * ROW:
            yield one.row()
    if one.spans:
        yield one.row()
    yield ev.Left(**one.base(), site=8)
    yield ev.Ended(**one.base(), how="exit", code=0, site=0, groups=0)


def _beginning(one: _Rank) -> Iterator[ev.Record]:
    it = one.it
    yield ev.Began(
        **one.base(), pid=1000 + one.rank, parent=1, host=f"host{one.host}", node=one.host, argv=["train.py"],
        folder=FOLDER, wall=1e9 + one.now, rank=one.rank,
    )  # fmt: skip
    for number, text in LINES.items():
        yield ev.Site(**one.base(), id=number, file="train.py", line=number, function="main", text=text)
    local = one.rank // it.hosts
    yield ev.Joined(
        **one.base(), rank=one.rank, world_size=it.ranks, token="t", backend="gloo", local_rank=local, site=1
    )
    begun = one.now
    yield one.call("ddp-construct", 2, "wrapper 0")
    one.now += 0.05
    one.span("call", begun, 0, one.n)
    tensors = ev.Tensors(names=list(PARAMETERS), digests=b"\x01" * 8 * len(PARAMETERS))
    yield ev.Wrapped(
        **one.base(), wrapper=0, kind="Net", site=2, parameters=tensors, buffers=ev.Tensors(), buffer_owners=[],
        local_buffers=[], order=list(PARAMETERS), ignored=[], broadcast_buffers=True, devices=["cpu"],
        device_ids=None, shared=[],
    )  # fmt: skip
    yield ev.Loader(
        **one.base(), loader=0, site=3, dataset="Rows", size=it.epoch * 8 * it.ranks, stream=False,
        sampler="DistributedSampler", distributed=True, rank=one.rank, replicas=it.ranks, shuffle=True, seed=0,
        sampler_drops=False, batch_size=8, drop_last=False, workers=0, dataset_id=1,
    )  # fmt: skip
    held = [ev.Parameter(name=name, kind="float32[4]", wrapper=0, reduced=True) for name in PARAMETERS]
    yield ev.Optimizer(
        **one.base(), optimizer=0, kind="SGD", site=6, parameters=held, sharded=False, values=tensors.digests,
        groups=[len(held)],
    )  # fmt: skip


def _step(one: _Rank, shared: random.Random, step: int, place: int) -> Iterator[ev.Record]:
    it = one.it
    begun = one.now
    one.now += 0.0004 * (0.8 + 0.4 * one.random.random())
    one.span("data", begun, 3, place)
    first = (place * it.ranks + one.rank) * 8
    indices = b"".join(index.to_bytes(8, "little") for index in range(first, first + 8))
    yield ev.Batch(
        **one.base(), loader=0, pass_=step // it.epoch, number=place, indices=indices, prints=indices, labels=b"",
        backwards=place, samples=8,
    )  # fmt: skip
    begun = one.now
    slow = it.lateness if one.rank == it.late else 0.0
    one.now += 0.003 * (0.9 + 0.2 * one.random.random()) + slow
    one.span("forward", begun, 4)
    begun = one.now
    yield one.call("ddp-gradients", 5, "wrapper 0")
    number = one.n
    # The reduction ends for all at once: when the last has come, and some time after.
    ends = (step + 1) * (0.012 + it.lateness * (it.late is not None)) + 10.06 + 0.0005 * shared.random()
    ends += 0.02 * (step // it.epoch)
    one.now = max(ends, one.now + 0.001)
    one.span("call", begun, 0, number)
    one.span("backward", begun, 5)
    begun = one.now
    one.now += 0.0006
    one.span("step", begun, 6, step)
    wrong = it.diverges is not None and one.rank == it.diverges[0] and step >= it.diverges[1]
    gradients = (b"\x02" if wrong else b"\x01") * 8 * len(PARAMETERS)
    usage = ev.Usage(wrapper=0, forwards=1, armed=1, reached=1, backwards=1, same_line=1, backward_site=5,
                     forward_site=4)  # fmt: skip
    yield ev.Step(
        **one.base(), optimizer=0, number=step, place=step, site=6, gradients=gradients,
        parameters=gradients, whole=step < 8, state={}, rates=[0.1], scale=None, usage=[usage], backwards=1,
        backward_site=5, collectives=0,
    )  # fmt: skip


def _epoch_ends(one: _Rank, epoch: int, batches: int) -> Iterator[ev.Record]:
    yield ev.PassEnded(
        **one.base(), loader=0, number=epoch, batches=batches, samples=8 * batches, exhausted=True,
        order=f"order {epoch} of {one.rank}", backwards=batches,
    )  # fmt: skip
    if one.rank == 0:
        begun = one.base()
        start = one.now
        one.now += 0.012
        ended = one.base()
        yield ev.File(**begun, op="write", how="torch.save", path="/job/last.pt", target="", site=7,
                      ended=int(ended["n"]), existed=epoch > 0, thread="", keys=["net"])  # fmt: skip
        one.span("file", start, 7, int(begun["n"]))


def _barrier(one: _Rank, shared: random.Random) -> Iterator[ev.Record]:
    begun = one.now
    yield one.call("barrier", 8)
    one.now = max(one.now + 0.001, begun + (0.014 if one.rank else 0.002))
    one.span("call", begun, 0, one.n)


def _hang(one: _Rank) -> Iterator[ev.Record]:
    """All but one wait in a barrier; that one computes, and then ends."""
    yield one.row()
    if one.rank == one.it.hangs:
        one.now += 1.0
        yield ev.Pulse(**one.base(), site=7, doing="save", pending=None)
        return
    call = one.call("barrier", 8)
    yield call
    one.now += 1.0
    yield ev.Pulse(**one.base(), site=8, doing="barrier", pending=call.n, since=call.at)
    one.now += 4.0
    yield ev.Pulse(**one.base(), site=8, doing="barrier", pending=call.n, since=call.at)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for option, default in (("--ranks", 32), ("--steps", 10_000), ("--hosts", 1), ("--epoch", 500)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--late", type=int)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write(
        given.folder,
        Training(ranks=given.ranks, steps=given.steps, hosts=given.hosts, epoch=given.epoch, late=given.late),
    )
