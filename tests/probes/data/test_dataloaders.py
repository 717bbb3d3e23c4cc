"""What the probes of data and random streams put down while a program loads and trains."""

from __future__ import annotations

import array
import gc
import itertools
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    _utils,
    dataloader,
)
from torch.utils.data.distributed import DistributedSampler

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Process
from ddpcheck.probes.data import dataloaders, fetched_samples
from ddpcheck.probes.ddp import forward_inputs
from ddpcheck.probes.randomness import random_draws
from ddpcheck.probes.recording import recorder
from tests import progress

PATCHED = [
    (DataLoader, "__init__"), (DistributedSampler, "__init__"), (dataloader._BaseDataLoaderIter, "__init__"),
    (dataloader._BaseDataLoaderIter, "_next_index"), (dataloader._BaseDataLoaderIter, "__next__"),
    (dataloader._MultiProcessingDataLoaderIter, "__init__"), (dataloader._MultiProcessingDataLoaderIter, "_reset"),
    (_utils.fetch._MapDatasetFetcher, "fetch"), (_utils.fetch._IterableDatasetFetcher, "fetch"),
    (torch, "manual_seed"), (torch.random, "manual_seed"), (torch, "set_rng_state"), (torch.random, "set_rng_state"),
    *((torch.cuda, n) for n in ("manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all")),
    *((torch.cuda.random, n) for n in ("manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all")),
    (random, "seed"), (random, "setstate"), (np.random, "seed"), (np.random, "set_state"),
]  # fmt: skip


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """The probes are in place during a test, and record; what they have put down so far, kind by kind."""
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(fetched_samples, "GRACE", 60.0)
    for name, value in (("_known", {}), ("_loaders", 0), ("_lines", {}), ("_joined", False)):
        monkeypatch.setattr(dataloaders, name, value)
    monkeypatch.setattr(random_draws, "_forwards", {})
    monkeypatch.setattr(forward_inputs, "_forwards", {})
    dataloaders.watch()
    random_draws.watch()
    recorder.begin(tmp_path, 1 << 20)

    def put_down(kind):
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(kind)

    yield put_down
    recorder.stop()


def indices(batch):
    return list(array.array("q", batch.indices))


class Noisy(Dataset):
    """Samples with noise from all three generators."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index + torch.rand(2) + random.random() + np.random.rand()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10.0).view(5, 2))


DATA = TensorDataset(torch.randn(12, 3), torch.arange(12))


# --- loaders


def test_a_loader_is_described(watched):
    """Its dataset, the sampler that decides, and what that says of ranks."""
    sampler = DistributedSampler(DATA, num_replicas=3, rank=1, seed=5, drop_last=True)
    DataLoader(DATA, batch_size=2, sampler=sampler, drop_last=True)
    (made,) = watched(ev.Loader)
    assert (made.dataset, made.size, made.sampler, made.distributed) == (
        "TensorDataset",
        12,
        "DistributedSampler",
        True,
    )
    assert (made.rank, made.replicas, made.shuffle, made.seed, made.sampler_drops) == (1, 3, True, 5, True)
    assert (made.batch_size, made.drop_last, made.repeats, made.batch_sampler) == (2, True, False, "")
    lines = {site.id: site.text for site in watched(ev.Site)}
    assert lines[made.site].startswith("DataLoader(DATA")
    assert lines[made.sampler_site].startswith("sampler = DistributedSampler")


def test_loaders_of_one_dataset_are_known(watched):
    """Also where the first of them is gone already."""
    DataLoader(DATA, shuffle=True)
    gc.collect()
    DataLoader(DATA)
    DataLoader(TensorDataset(torch.zeros(3)))
    first, second, third = watched(ev.Loader)
    assert first.dataset_id == second.dataset_id != third.dataset_id
    assert [one.shuffle for one in (first, second, third)] == [True, False, False]


def test_samplers_of_other_kinds(watched):
    """Drawing with replacement, and batches that a sampler of the user's own makes."""

    class Batches(BatchSampler):
        pass

    class Shard(Stream):
        rank, world_size = 0, 1

        def __init__(self):
            self.shard_id, self.num_shards = 1, 4

    DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 12, 5))
    DataLoader(DATA, batch_sampler=Batches(range(12), 3, False))
    DataLoader(Shard())
    weighted, batches, stream = watched(ev.Loader)
    assert weighted.repeats
    assert (batches.batch_sampler, batches.batch_size) == ("Batches", None)
    assert (stream.stream, stream.size, stream.dataset_rank, stream.dataset_replicas) == (True, None, 1, 4)


def test_a_loader_of_the_users_class_is_told_where_it_is_made(watched):
    """And not in its own constructor."""

    class Mine(DataLoader):
        def __init__(self, dataset):
            super().__init__(dataset, batch_size=4)

    Mine(DATA)
    (made,) = watched(ev.Loader)
    assert next(site.text for site in watched(ev.Site) if site.id == made.site) == "Mine(DATA)"


# --- passes


def test_a_pass_is_put_down_batch_by_batch(watched):
    """Indices in their order, a fingerprint for each sample, and backward() calls between the batches."""
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0)
    loader = DataLoader(DATA, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for _ in loader:
            dataloaders.note_backward()
    begun, batches, over = watched(ev.Pass), watched(ev.Batch), watched(ev.PassEnded)
    assert [(one.number, one.epoch, one.grad) for one in begun] == [(0, 0, True), (1, 1, True)]
    assert [one.samples for one in batches] == [4, 2, 4, 2]
    assert [len(one.prints) for one in batches] == [32, 16, 32, 16]
    assert [(o.batches, o.samples, o.exhausted, o.backwards) for o in over] == [(2, 6, True, 2)] * 2
    assert over[0].order != over[1].order
    assert len({i for b in batches[:2] for i in indices(b)}) == 6
    seen = {}
    for batch in batches:
        for place, index in enumerate(indices(batch)):
            assert seen.setdefault(index, batch.prints[8 * place : 8 * place + 8]) == batch.prints[8 * place :][:8]
    assert len(set(seen.values())) == len(seen)


def test_a_pass_that_is_broken_off(watched):
    """It is over when the script lets go of it; what was trained since its last batch counts."""
    for batch in DataLoader(DATA, batch_size=2):
        dataloaders.note_backward()
        if int(batch[1][0]) >= 2:
            break
    gc.collect()
    (over,) = watched(ev.PassEnded)
    assert (over.batches, over.exhausted, over.backwards) == (2, False, 2)


def test_a_batch_that_is_only_looked_at(watched):
    """Training with other batches is not counted for it."""
    peek = iter(DataLoader(DATA, batch_size=2))
    next(peek)
    for _ in DataLoader(DATA, batch_size=6):
        dataloaders.note_backward()
    del peek
    gc.collect()
    assert [(one.loader, one.backwards) for one in watched(ev.PassEnded)] == [(1, 2), (0, 0)]


def test_two_loaders_side_by_side(watched):
    """Each has its own passes."""
    for _ in zip(DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=4), strict=True):
        dataloaders.note_backward()
    assert [(one.loader, one.backwards) for one in watched(ev.PassEnded)] == [(0, 3), (1, 3)]


def test_a_sampler_without_end(watched):
    """Its loader is no other for it."""
    loader = DataLoader(DATA, batch_size=2, sampler=itertools.cycle(range(12)))
    assert len(list(zip(loader, range(20), strict=False))) == 20
    assert len(watched(ev.Batch)) == 21


def test_a_stream_has_contents_only(watched):
    """No indices, and fingerprints."""
    list(DataLoader(Stream(), batch_size=2))
    batches, (over,) = watched(ev.Batch), watched(ev.PassEnded)
    assert [(one.indices, len(one.prints)) for one in batches] == [(b"", 16), (b"", 16), (b"", 8)]
    assert (over.batches, over.samples, over.order) == (3, 5, "")


def test_batches_of_a_kind_of_their_own(watched):
    """The samples are known, whatever is made of them."""
    assert len(list(DataLoader(DATA, batch_size=4, collate_fn=lambda samples: object()))) == 3
    list(DataLoader(DATA, batch_size=4))
    assert [len(one.indices) for one in watched(ev.Batch)] == [32] * 6
    prints = [one.prints for one in watched(ev.Batch)]
    assert prints[:3] == prints[3:]
    assert len(set(prints)) == 3


def test_padding_and_packing_hide_no_sample(watched):
    """A stream whose batches have another number of rows, of another length: its samples are known all the same."""
    list(DataLoader(Stream(), batch_size=2))
    list(DataLoader(Stream(), batch_size=5, collate_fn=lambda samples: torch.cat([torch.ones(9, 1)] * 2)))
    prints = b"".join(one.prints for one in watched(ev.Batch) if one.loader == 0)
    assert [one.prints for one in watched(ev.Batch) if one.loader == 1] == [prints]
    assert [one.samples for one in watched(ev.PassEnded)] == [5, 5]


def test_a_batch_that_could_not_be_made_takes_its_indices_along(watched):
    """The program goes on with the next one, whose indices are its own."""
    loader = iter(DataLoader(DATA, batch_size=4, collate_fn=failing_at(4)))
    next(loader)
    with pytest.raises(OSError, match="no such picture"):
        next(loader)
    next(loader)
    assert [indices(one) for one in watched(ev.Batch)] == [[0, 1, 2, 3], [8, 9, 10, 11]]


def failing_at(index):
    """What collates, and fails on a batch that begins with this one."""

    def collate(samples):
        if int(samples[0][1]) == index:
            raise OSError("no such picture")
        return samples

    return collate


def test_later_passes_are_told_in_numbers(watched):
    """The first ones and powers of two in full, the others without their contents."""
    loader = DataLoader(DATA, batch_size=12)
    for _ in range(9):
        list(loader)
    assert [bool(one.prints) for one in watched(ev.Batch)] == [n in (0, 1, 2, 4, 8) for n in range(9)]


@pytest.mark.parametrize("on_one_line", [True, False])
def test_looks_at_a_first_batch_use_up_no_pass(watched, on_one_line):
    """Before each epoch a batch is taken: the epochs are told as if it had not been."""

    def batches(loader):
        yield from loader

    loader = DataLoader(DATA, batch_size=6)
    for _ in range(9):
        next(batches(loader) if on_one_line else iter(loader))
        list(batches(loader))
    ended = {one.number: one.batches for one in watched(ev.PassEnded)}
    assert [ended[number] for number in range(18)] == [1, 2] * 9
    told = {one.pass_ for one in watched(ev.Batch) if one.prints}
    assert [2 * epoch + 1 in told for epoch in range(9)] == [n in (0, 1, 2, 4, 8) for n in range(9)]


def test_looks_that_come_again_and_again_are_told_ever_more_rarely(watched):
    """A program may take a first batch for every step of it."""
    loader = DataLoader(DATA, batch_size=6)
    for _ in range(200):
        next(iter(loader))
    assert sum(bool(one.prints) for one in watched(ev.Batch)) == 64 + 2


def test_little_room_keeps_the_same_samples(watched, tmp_path):
    """Where evidence runs short, all ranks keep the same indices."""
    (tmp_path / "small").mkdir()
    recorder.begin(tmp_path / "small", 4000)
    for _ in range(30):
        list(DataLoader(DATA, batch_size=3))
    folder = Folder(tmp_path / "small")
    folder.read()
    (process,) = folder.processes.values()
    kept = [indices(one) for one in process.of(ev.Batch) if one.indices]
    assert sum(file.stat().st_size for file in folder.path.iterdir()) < 4000
    assert any(all(ev.is_chosen(i, 2) for i in one) and one for one in kept)


def test_fingerprints_that_cost_too_much_are_thinned(watched, monkeypatch):
    """The same samples on all ranks; the others are told by index alone."""
    monkeypatch.setattr(fetched_samples, "GRACE", 0.0)
    monkeypatch.setattr(fetched_samples, "SHARE", 0.0)
    monkeypatch.setattr(fetched_samples, "_budget", fetched_samples._Budget())
    list(DataLoader(DATA, batch_size=4))
    second = watched(ev.Batch)[1]
    assert indices(second) == [4, 5, 6, 7]
    assert second.prints == b"" or ev.ABSENT in second.prints


def test_large_batches_are_looked_at_in_part(watched):
    """All indices, and the fingerprints of every second, fourth … of them."""
    data = TensorDataset(torch.randn(200, 2))
    list(DataLoader(data, batch_size=200))
    (batch,) = watched(ev.Batch)
    prints = [batch.prints[start : start + 8] for start in range(0, 1600, 8)]
    assert indices(batch) == list(range(200))
    assert [place for place, one in enumerate(prints) if one != ev.ABSENT] == [
        place for place in range(200) if ev.is_chosen(place, 4)
    ]


def test_a_loader_without_a_recorder_is_left_alone(watched, tmp_path):
    """Nothing is put down, and nothing changes."""
    recorder.stop()
    assert len(list(DataLoader(DATA, batch_size=4))) == 3


def test_inputs_are_put_down(watched):
    """What goes into a model: the same for equal tensors."""
    forward_inputs.note_inputs((torch.ones(2, 2),), {"mask": [torch.zeros(2)]}, 0)
    forward_inputs.note_inputs((torch.ones(2, 2),), {"mask": [torch.zeros(2)]}, 0)
    forward_inputs.note_inputs((torch.zeros(2, 2),), {"mask": [torch.ones(2)]}, 0)
    forward_inputs.note_inputs(("text",), {}, 0)
    first, second, third = watched(ev.Inputs)
    assert first.digest == second.digest != third.digest
    assert [one.number for one in (first, second, third)] == [0, 1, 2]


def test_inputs_are_put_down_with_the_batch_before(watched):
    """How large both are tells whether a model gets all of a batch."""
    for features, _ in DataLoader(DATA, batch_size=4):
        forward_inputs.note_inputs((features[::2],), {}, 0)
    first, *_, last = watched(ev.Inputs)
    assert (first.shapes, first.given, first.samples) == ([[2, 3]], [[4, 3], [4]], 4)
    assert [(one.loader, one.pass_, one.batch) for one in (first, last)] == [(0, 0, 0), (0, 0, 2)]
    forward_inputs.note_inputs((torch.ones(2),), {}, 0)
    assert watched(ev.Inputs)[-1].loader is None


# --- random states


def test_random_numbers_are_not_disturbed(watched):
    """A program draws what it would have drawn."""

    def drawn():
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        return [batch.tolist() for batch in DataLoader(Noisy(), batch_size=2, shuffle=True)]

    recording = drawn()
    recorder.stop()
    assert drawn() == recording


def test_a_forward_that_draws(watched):
    """Its state before, whether it was drawn from, and the line that seeded it."""
    torch.manual_seed(9)
    for noise in (True, False):
        random_draws.forward_begins(0)
        if noise:
            torch.rand(2)
        random_draws.forward_ends(0)
    (stream,) = watched(ev.Stream)
    assert (stream.kind, stream.where, stream.number, stream.wrapper, stream.seed) == ("torch", "forward", 0, 0, "9")
    text = next(site.text for site in watched(ev.Site) if site.id == stream.seeded)
    assert text == "torch.manual_seed(9)"


def test_forwards_are_looked_at_again_after_a_seeding(watched):
    """The first ones, powers of two, and those that follow a line that sets a state."""
    for number in range(40):
        if number == 20:
            torch.set_rng_state(torch.get_rng_state())
        random_draws.forward_begins(0)
        torch.rand(1)
        random_draws.forward_ends(0)
    assert [one.number for one in watched(ev.Stream)] == [*range(9), 16, 20, 21, 32]


def test_states_that_torch_puts_back_are_no_seeding(watched):
    """fork_rng() restores what was there."""
    torch.manual_seed(4)
    with torch.random.fork_rng():
        torch.rand(1)
    random_draws.forward_begins(0)
    torch.rand(1)
    random_draws.forward_ends(0)
    assert watched(ev.Stream)[0].seed == "4"


def test_fetches_that_draw(watched):
    """The first ones of a pass, each generator that was used."""
    list(DataLoader(Noisy(), batch_size=1))
    drew = watched(ev.Stream)
    assert [(one.kind, one.number) for one in drew] == [(k, n) for n in range(3) for k in ("torch", "python", "numpy")]
    assert {(one.loader, one.pass_, one.worker) for one in drew} == {(0, 0, None)}


WORKERS = """
import os, sys
from pathlib import Path
import torch
from ddpcheck.probes import all_probes as watching
watching.start(Path(sys.argv[1]), 1 << 20)
import numpy
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return index + torch.rand(2)

def seed(worker):
    torch.manual_seed(worker)

if __name__ == "__main__":
    loader = DataLoader(Noisy(), batch_size=2, num_workers=1, persistent_workers=True, worker_init_fn=seed)
    for _ in range(2):
        list(loader)
    list(DataLoader(Noisy(), batch_size=4, num_workers=1))
    print(os.getpid())
"""


@pytest.mark.long
def test_workers_put_down_what_they_draw(tmp_path):
    """Each in a file of its own: whose worker it is, for which pass, and the line that seeded it."""
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = progress.run(
        [sys.executable, str(script), str(evidence)], text=True, env=environment,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    pid = int(run.stdout)
    folder = Folder(Path(evidence))
    folder.read()
    loads = [p for p in folder.processes.values() if p.began is not None and p.began.worker_of == pid]
    told = sorted({key for p in loads for key in _told(p)})
    assert told == [(0, 0, "seed"), (0, 1, "seed"), (1, 0, "")]


def _told(process: Process):
    for stream in process.of(ev.Stream):
        seeded = process.where(stream.seeded)
        assert (stream.where, stream.kind, stream.worker) == ("fetch", "torch", 0)
        yield stream.loader, stream.pass_, seeded.function if seeded is not None else ""
