"""What an epoch consists of in a rank, as assertions ask for it: samples, batches, and the orders of passes."""

from __future__ import annotations

from ddpcheck.vocabulary.model import Struct


class SamplerFacts(Struct, frozen=True, kw_only=True):
    """How the samples were chosen, as the sampler itself says."""

    kind: str
    """The sampler's class."""
    distributed: bool = False
    """It knows of ranks: it has num_replicas and rank."""
    rank: int | None = None
    num_replicas: int | None = None
    seed: int | None = None
    epoch: int | None = None
    shuffle: bool | None = None
    drop_last: bool = False
    positions: int | None = None
    """The samples it gives this rank, before the loader drops an incomplete batch."""


class ShardFacts(Struct, frozen=True, kw_only=True):
    """What one rank's epoch consists of."""

    sampler: SamplerFacts
    prints: list[str]
    """A fingerprint of each sample, in the order of the epoch."""
    dropped: int | None = None
    """How many of these, the last, the loader drops; None where they are only what it yields."""
    indices: list[int] | None = None
    """Each sample's place in this rank's dataset, where there are places."""
    size: int | None = None
    """Samples in the dataset; None for a stream."""
    by_content: bool = True
    """Fingerprints are of contents; of indices where a sample is another each time it is read."""
    drops_batch: bool = False
    """The loader drops an incomplete last batch."""
    batch_size: int | None = None
    probes: list[str] | None = None
    """Fingerprints of a few places of the dataset, the same on all ranks; None where they show nothing.

    Empty for a place whose sample is another each time it is read.
    """


class BatchFacts(Struct, frozen=True, kw_only=True):
    """How many batches one rank has in an epoch, and the numbers that imply how many it should."""

    batches: int
    """Batches of an epoch, counted without loading any."""
    consumed: int | None = None
    """Batches that the training loop says it took."""
    size: int | None = None
    """Samples in the dataset; None for a stream."""
    batch_size: int | None = None
    """None where a batch sampler of the user's own decides."""
    drop_last: bool = False
    """The loader drops an incomplete last batch."""
    sampler_drops: bool = False
    """The sampler drops the remainder instead of padding."""
    dataset: str = ""
    """The dataset's class."""
    sampler: str = ""
    """The class of what decides which samples this rank gets; empty where that is not known."""


class SamplerPass(Struct, frozen=True, kw_only=True):
    """One time that a rank went through its sampler."""

    epoch: int | None
    """What set_epoch had said; None where there is no such thing."""
    order: str
    """A digest of the indices, in order."""
    length: int


class EpochFacts(Struct, frozen=True, kw_only=True):
    """The passes of one rank through one sampler."""

    kind: str
    shuffle: bool
    passes: list[SamplerPass]
    followed: bool = True
    """Its passes are on record: they go by torch's own order."""
