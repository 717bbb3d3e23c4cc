"""What the DataLoaders of a watched program hand out: loaders, passes, and the content of every batch."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, dataloader
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.evidence import NO_SITE, Loader, Pass
from ddpcheck.probes.data import dataset_values
from ddpcheck.probes.data.dataset_length import length
from ddpcheck.probes.data.loader_pass import IN_THREAD, Passing, Tally, is_kept, is_told
from ddpcheck.probes.data.one_epoch import deciding_sampler
from ddpcheck.probes.data.order_lines import order_lines
from ddpcheck.probes.data.rank_attributes import RANKS, REPLICAS, held, place_among, whole_number
from ddpcheck.probes.processes import span_log
from ddpcheck.probes.randomness import seed_lines
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.call_frames import maker
from ddpcheck.probes.recording.patching import around
from ddpcheck.vocabulary.clock import clock

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_REPEATS = ("num_repeats", "repeats", "repetitions")
"""The attributes by which samplers tell how often they give a sample."""
_STATE = "_ddpcheck"
"""The attribute of torch's iterators under which their pass is kept."""


class _Known:
    """A loader that is on record."""

    def __init__(self, loader: DataLoader[Any], number: int, dataset: int) -> None:
        self.loader = weakref.ref(loader)
        self.number = number
        self.dataset = dataset
        self.passes = 0
        self.begun: dict[int, tuple[int, Passing]] = {}
        """By line: how many of its passes were more than a look, and the last pass."""
        self.stream = isinstance(loader.dataset, IterableDataset)

    def gone_through(self, site: int) -> int:
        """How often a line has gone through it before, and not just had a look at the first batch."""
        times, last = self.begun.get(site, (0, None))
        return times + (last is not None and not last.is_a_look)


begun: tuple[int, int] | None = None
"""Loader and number of the pass that was begun last: a worker that is forked now loads for it."""

_joined = False
_known: dict[int, _Known] = {}
"""By the loader's id: one with an equality of its own may have no hash."""
_dataset_refs: dict[int, tuple[int, weakref.ref[Any]]] = {}
_loaders = _datasets = 0
_lines: dict[int, int] = {}
"""Passes through the loaders of one line."""
_sampler_sites: dict[int, int] = {}


def watch() -> None:
    """Record every loader and its passes from now on."""
    around(DataLoader, "__init__", _around_loader)
    around(DistributedSampler, "__init__", _around_sampler)
    for owner, name, make in (
        ("_BaseDataLoaderIter", "__init__", _around_iter),
        ("_BaseDataLoaderIter", "_next_index", _around_index),
        ("_BaseDataLoaderIter", "__next__", _around_next),
        ("_MultiProcessingDataLoaderIter", "_reset", _around_reset),
    ):
        around(getattr(dataloader, owner, None), name, make)


def note_backward() -> None:
    """backward() was called."""
    Tally.backwards += 1


def set_joined(joined: bool) -> None:
    """Whether ``with model.join():`` is open: ranks may have different numbers of batches there."""
    global _joined
    _joined = joined


# --- construction


def _around_loader(original: Any) -> Any:
    def __init__(self: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        writer = recorder.current()
        if writer is not None:
            _register(writer, self, user_lines.here(maker(self)))

    return __init__


def _around_sampler(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if recorder.current() is not None:
            _sampler_sites[id(self)] = user_lines.here(maker(self))
            weakref.finalize(self, _sampler_sites.pop, id(self), None).atexit = False

    return __init__


def _register(writer: recorder.Recorder, loader: DataLoader[Any], site: int) -> _Known | None:
    global _loaders
    try:
        number, _loaders = _loaders, _loaders + 1
        known = _Known(loader, number, _dataset_number(loader.dataset))
        writer.write(_facts(writer, loader, known, site))
    except Exception as error:  # a dataset or sampler whose attributes cannot be read
        signal_exceptions.let_through(error)
        return None
    if id(loader) not in _known:
        weakref.finalize(loader, _known.pop, id(loader), None).atexit = False
    _known[id(loader)] = known
    return known


def _facts(writer: recorder.Recorder, loader: DataLoader[Any], known: _Known, site: int) -> Loader:
    sampler = deciding_sampler(loader, held)
    place = place_among(sampler, held) if not known.stream else None
    batches = loader.batch_sampler
    plain = type(batches) is BatchSampler and not known.stream
    attributes = getattr(loader.dataset, "__dict__", {})
    return Loader(
        **writer.next(),
        loader=known.number,
        site=site,
        dataset=type(loader.dataset).__name__,
        size=length(loader.dataset) if not known.stream else None,
        stream=known.stream,
        sampler=type(sampler).__name__ if not known.stream else "",
        distributed=place is not None,
        rank=place[0] if place is not None else None,
        replicas=place[1] if place is not None else None,
        shuffle=_shuffle(sampler),
        seed=whole_number(held(sampler, "seed", None)),
        sampler_drops=place is not None and bool(held(sampler, "drop_last", False)),
        batch_size=batches.batch_size if plain and isinstance(batches, BatchSampler) else loader.batch_size,
        drop_last=bool(loader.drop_last) or bool(held(batches, "drop_last", False)),
        workers=loader.num_workers,
        dataset_id=known.dataset,
        sampler_site=_sampler_sites.get(id(sampler), NO_SITE),
        repeats=held(sampler, "replacement", False) is True
        or any((whole_number(held(sampler, name, None)) or 0) > 1 for name in _REPEATS),
        batch_sampler=type(batches).__name__ if batches is not None and type(batches) is not BatchSampler else "",
        order=order_lines(sampler if type(batches) is BatchSampler or batches is None else batches),
        dataset_rank=next((v for name in RANKS if (v := whole_number(attributes.get(name))) is not None), None),
        dataset_replicas=next((v for name in REPLICAS if (v := whole_number(attributes.get(name))) is not None), None),
    )


def _dataset_number(dataset: Any) -> int:
    """The number of a dataset, which is the same as long as the object is there."""
    global _datasets
    number, other = _dataset_refs.get(id(dataset), (0, None))
    if other is not None and other() is dataset:
        return number
    for known in list(_known.values()):  # a list, say, takes no weak reference
        loader = known.loader()
        if loader is not None and loader.dataset is dataset:
            return known.dataset
    _datasets += 1
    with contextlib.suppress(TypeError):
        _dataset_refs[id(dataset)] = (_datasets, weakref.ref(dataset))
    return _datasets


def _shuffle(sampler: Any) -> bool | None:
    if isinstance(sampler, (RandomSampler, SequentialSampler)):
        return isinstance(sampler, RandomSampler)
    shuffle = held(sampler, "shuffle", None)
    return shuffle if isinstance(shuffle, bool) else None


# --- passes


def _around_iter(original: Any) -> Any:
    def __init__(self: Any, loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
        writer = recorder.current()
        site = user_lines.here() if writer is not None else NO_SITE
        original(self, loader, *args, **kwargs)
        if writer is not None:
            _begin(writer, self, loader, site)

    return __init__


def _around_reset(original: Any) -> Any:
    def _reset(self: Any, loader: DataLoader[Any], first_iter: bool = False) -> None:
        writer = recorder.current()
        if writer is not None and not first_iter:  # the workers of the pass before go on
            _begin(writer, self, loader, user_lines.here())
        original(self, loader, first_iter)

    return _reset


def _begin(writer: recorder.Recorder, iterator: Any, loader: DataLoader[Any], site: int) -> None:
    global begun
    known = _known.get(id(loader))
    if known is None or known.loader() is not loader:
        known = _register(writer, loader, site)
    if known is None:
        return
    number, known.passes = known.passes, known.passes + 1
    alone = user_lines.line_alone(site)
    line = _lines[alone] = _lines.get(alone, -1) + 1
    # Where every epoch has a loader of its own, it is the line that comes again and again.
    before = known.gone_through(alone)
    told = is_told(before, 3) and is_told(line, 64)
    in_order = bool(getattr(iterator, "_in_order", True)) or loader.num_workers == 0
    passing = Passing(known.number, number, not known.stream and in_order, told, site)
    known.begun[alone] = before, passing
    slot: list[Passing] | None = iterator.__dict__.get(_STATE)
    if slot is None:
        slot = [passing]
        setattr(iterator, _STATE, slot)
        weakref.finalize(iterator, _let_go, slot).atexit = False
    else:
        slot[0].end(exhausted=False)
        slot[0] = passing
    begun = (known.number, number)
    seeded, seed = seed_lines.last("torch") if loader.generator is None else (NO_SITE, "")
    base_seed = getattr(iterator, "_base_seed", None)
    if is_kept(number):
        writer.write(
            Pass(
                **writer.next(),
                loader=known.number,
                number=number,
                site=site,
                epoch=whole_number(held(deciding_sampler(loader, held), "epoch")),
                base_seed=base_seed if isinstance(base_seed, int) else None,
                grad=torch.is_grad_enabled(),
                joined=_joined,
                seeded=seeded,
                seed=seed,
                sampler_length=_sampler_length(loader) if told and not known.stream else None,
            )
        )
        if loader.num_workers and loader.persistent_workers and told:
            dataset_values.write(writer, loader.dataset, known.number, number)


def _sampler_length(loader: DataLoader[Any]) -> int | None:
    """How many samples its sampler says that it gives, or how many batches one of the program's own."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return length(batches)
    if isinstance(loader.sampler, DistributedSampler):
        return whole_number(held(loader.sampler, "num_samples"))
    plain = type(loader.sampler) in (RandomSampler, SequentialSampler)
    return length(loader.dataset if plain else loader.sampler)


def _let_go(slot: list[Passing]) -> None:
    slot[0].end(exhausted=False)


# --- batches


def _around_index(original: Any) -> Any:
    def _next_index(self: Any) -> Any:
        index = original(self)
        slot: list[Passing] | None = self.__dict__.get(_STATE)
        if slot is not None:
            slot[0].ask(index)
        return index

    return _next_index


def _around_next(original: Any) -> Any:
    def __next__(self: Any) -> Any:
        slot: list[Passing] | None = self.__dict__.get(_STATE)
        if slot is None:
            return original(self)
        passing = slot[0]
        passing.count()
        before, IN_THREAD.passing = IN_THREAD.passing, passing
        began = clock.now()
        try:
            batch = original(self)
        except StopIteration:
            passing.end(exhausted=True)
            raise
        except Exception:
            passing.lose()
            raise
        finally:
            IN_THREAD.passing = before
        span_log.add(span_log.DATA, began, clock.now(), passing.site, passing.batches)
        passing.hand(batch)
        return batch

    return __next__
