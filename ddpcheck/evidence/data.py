"""Loaders, their passes and batches, and random states."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.record import NO_SITE, Record

STATE = "state "
"""What a word for a random state begins with that was put back; without it, it stands for a seed."""
EVERY_INPUT = 64
"""What goes into so many forwards of a wrapper is on record, one after the other; then ever less of it."""


def is_chosen(number: int, every: int) -> bool:
    """Whether an index, or a number that stands for a sample, is one of so many: it depends on no rank's share."""
    return every < 2 or (number * 0x9E3779B97F4A7C15 >> 32) % every == 0


class Loader(Record, frozen=True, kw_only=True):
    """A DataLoader, at its construction."""

    loader: int
    site: int
    dataset: str
    size: int | None
    stream: bool
    sampler: str
    """The class of the sampler that decides what this rank gets."""
    distributed: bool
    """It knows a rank and a number of replicas."""
    rank: int | None
    replicas: int | None
    shuffle: bool | None
    seed: int | None
    sampler_drops: bool
    batch_size: int | None
    """None where a batch sampler of the user's own decides."""
    drop_last: bool
    workers: int
    dataset_id: int
    """The same for loaders of one dataset object."""
    sampler_site: int = NO_SITE
    repeats: bool = False
    """The sampler gives a sample more than once on purpose: it draws with replacement."""
    dataset_rank: int | None = None
    """What the dataset takes for its rank (or shard), if it has an attribute that says so."""
    dataset_replicas: int | None = None
    batch_sampler: str = ""
    """The class of a batch sampler of the user's own."""
    order: list[int] = msgspec.field(default_factory=list)
    """Where a class of the user's deals out the samples or batches: its __iter__, and its methods that this calls."""


class Pass(Record, frozen=True, kw_only=True):
    """An iteration over a loader begins."""

    loader: int
    number: int
    site: int
    epoch: int | None
    """What set_epoch has said, of a sampler that has an epoch."""
    base_seed: int | None
    """What the workers' random states are made from."""
    grad: bool
    joined: bool = False
    seeded: int = NO_SITE
    """Where the stream that the base seed was drawn from was last seeded."""
    seed: str = ""
    """What with."""
    sampler_length: int | None = None
    """How many samples (or batches) its sampler says that it gives; None where it cannot be asked."""


class Batch(Record, frozen=True, kw_only=True):
    """A batch was handed to the script."""

    share: ClassVar[float] = 0.25
    passing: ClassVar[bool] = True

    loader: int
    pass_: int
    number: int
    indices: bytes
    """int64 each; empty where the places are no indices."""
    prints: bytes
    """A fingerprint of each sample as the dataset gave it, eight bytes each; empty where another process fetched it."""
    labels: bytes
    """A fingerprint of each sample's last part; empty where a sample has one part."""
    backwards: int = 0
    """backward() calls since the first batch of the pass."""
    samples: int = 0
    """How many there are; fewer are told of, the same ones on all ranks, where evidence or time was short."""


class WorkerFetch(Record, frozen=True, kw_only=True):
    """What a worker process was given by the dataset for a batch."""

    share: ClassVar[float] = 0.25
    passing: ClassVar[bool] = True

    loader: int | None
    """None in a process that was started afresh, and knows its base seed only."""
    pass_: int
    worker: int
    base_seed: int
    number: int
    """The fetches of this worker in this pass before."""
    samples: int
    indices: bytes
    prints: bytes
    labels: bytes


class DatasetValues(Record, frozen=True, kw_only=True):
    """What a dataset holds, of plain values that its samples are made from, when a pass begins."""

    share: ClassVar[float] = 0.02

    loader: int | None
    pass_: int
    worker: int | None
    """None for the dataset of the program, of which each worker has a copy."""
    base_seed: int | None
    values: dict[str, bytes]
    """A digest by name; a dataset within it has its name before that of a value."""


class PassEnded(Record, frozen=True, kw_only=True):
    """An iteration over a loader is over."""

    loader: int
    number: int
    batches: int
    samples: int
    exhausted: bool
    order: str
    """A digest of the indices in their order; empty where there are none."""
    backwards: int
    """backward() calls between its batches."""


class Inputs(Record, frozen=True, kw_only=True):
    """What went into the forward of a wrapper, or of a model in none, in training."""

    passing: ClassVar[bool] = True

    wrapper: int | None
    number: int
    digest: bytes
    """Empty where the tensors could not be looked at."""
    site: int
    shapes: list[list[int]] = msgspec.field(default_factory=list)
    """Of the tensors."""
    loader: int | None = None
    """The loader that had handed out a batch last."""
    pass_: int = 0
    batch: int = 0
    """Which batch of the pass it was."""
    given: list[list[int]] = msgspec.field(default_factory=list)
    """The shapes of the tensors in that batch."""
    samples: int = 0
    """How many samples that batch had."""
    model: int | None = None
    """The number of a model in no wrapper."""


class Stream(Record, frozen=True, kw_only=True):
    """A random state at a moment where it was consumed (or might have been)."""

    passing: ClassVar[bool] = True

    kind: Literal["torch", "numpy", "python", "cuda"]
    where: Literal["forward", "fetch", "batch"]
    """``batch``: drawn by the program between a batch that it was handed and the forward that got it."""
    number: int
    """Which forward, or which fetch of the pass."""
    state: bytes
    """A digest of the state before."""
    consumed: bool
    site: int
    loader: int | None = None
    pass_: int | None = None
    worker: int | None = None
    wrapper: int | None = None
    """Of a forward through one."""
    model: int | None = None
    """Of a forward of a model in no wrapper: its number."""
    base_seed: int | None = None
    """What the loader has made the worker's states from."""
    seeded: int = NO_SITE
    """The line that last set this state, if it was not torch's own."""
    seed: str = ""
    """What to."""
    inside: bool = False
    """That line has set it within this very fetch: what was drawn then came from there, and not from the state before.
    """
    numbers: int = 0
    """Of ``batch``: how many were drawn, or what is over of a multiple of 624."""
