"""What is asked of the program's own datasets and samplers: nothing that would run code of theirs that matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, Sampler, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.data import dataloaders, rank_attributes
from ddpcheck.probes.data.dataset_length import length
from ddpcheck.probes.data.one_epoch import deciding_sampler
from ddpcheck.probes.recording import recorder

SIZE = 7
asked: list[str] = []


class Base(Dataset[Any]):
    fixed = 6

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __getitem__(self, place: int) -> int:
        return place

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def found(self) -> int:
        asked.append("found")
        return 5

    def count(self) -> int:
        asked.append("count")
        return 5


def of(size: Callable[[Any], int], **held: Any) -> Any:
    """A dataset with this ``__len__``."""
    return type("Mine", (Base,), {"__len__": size})(**held)


def counted(self: Any) -> int:
    self.times += 1
    return 5


def printed(self: Any) -> int:
    print("counting")
    return 5


def generated(self: Any) -> int:
    return sum(1 for _ in self.rows)


FIVE = TensorDataset(torch.zeros(5))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ([1] * 5, 5),
        (range(5), 5),
        (torch.zeros(5, 2), 5),
        (FIVE, 5),
        (Subset(FIVE, [0, 1, 2]), 3),
        (ConcatDataset([FIVE, FIVE]), 10),
        (of(lambda self: len(self.rows), rows=[1, 2]), 2),
        (of(lambda self: len(self.rows) // 2, rows=torch.zeros(4)), 2),
        (of(lambda self: self.rows.shape[0], rows=torch.zeros(4)), 4),
        (of(lambda self: min(self.most, 3), most=9), 3),
        (of(lambda self: SIZE), 7),
        (of(lambda self: self.fixed), 6),
        (of(lambda self: 64), 64),
        (of(lambda self: len(self.inner), inner=of(lambda self: len(self.rows), rows=[1])), 1),
    ],
)
def test_what_is_learnt(dataset: Any, expected: int) -> None:
    """Of torch's own, of plain containers, and of what does nothing but look at such."""
    assert length(dataset) == expected


@pytest.mark.parametrize(
    "dataset",
    [
        of(counted, times=0),
        of(printed),
        of(generated, rows=[1]),
        of(lambda self: self.found),
        of(lambda self: self.count()),
        of(lambda self: len(self.count()), rows=[1]),
        of(lambda self: int(torch.randint(0, 9, ()))),
        of(lambda self: len(self.inner), inner=of(printed)),
        of(lambda self: len(self.missing)),
        Subset(FIVE, of(printed)),  # type: ignore[arg-type]
        Base(),
        object(),
    ],
)
def test_what_is_not_asked(dataset: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever does more, or may."""
    before = torch.get_rng_state()
    assert length(dataset) is None
    assert (asked, capsys.readouterr().out) == ([], "")
    assert getattr(dataset, "times", 0) == 0
    assert torch.equal(torch.get_rng_state(), before)


class Seeded(Sampler[int]):
    """Its properties draw, and it finds everything else by running code."""

    def __init__(self) -> None:
        self.rank = 1

    @property
    def seed(self) -> int:
        asked.append("seed")
        return 3

    def __getattr__(self, name: str) -> int:
        asked.append(name)
        return 4

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        asked.append("length")
        return 4


def test_what_is_read_of_a_sampler(tmp_path: Path) -> None:
    """What it holds; a property of its own is not called, neither when a loader is made nor in a pass."""
    writer = recorder.begin(tmp_path, 1 << 20)
    try:
        sampler = Seeded()
        batches = type("Batches", (BatchSampler,), {})(sampler, 2, False)
        for loader in (DataLoader(of(printed), sampler=sampler), DataLoader(of(printed), batch_sampler=batches)):
            asked.clear()
            assert dataloaders._register(writer, loader, 0) is not None
            assert deciding_sampler(loader, rank_attributes.held) is sampler
            assert asked == []
        plain = DistributedSampler(FIVE, num_replicas=2, rank=1, seed=9)
        dataloaders._register(writer, DataLoader(FIVE, sampler=plain), 0)
    finally:
        recorder.stop()
    folder = Folder(tmp_path)
    folder.read()
    (process,) = folder.processes.values()
    assert [(one.size, one.seed, one.rank, one.replicas) for one in process.of(ev.Loader)] == [
        (None, None, None, None),
        (None, None, None, None),
        (5, 9, 1, 2),
    ]
