"""What a trainer is put through: each situation is a model, data of certain sizes, and settings, as plain data."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ddpcheck.vocabulary.model import Struct

LossKind = Literal["samples", "tokens", "pairs"]
Net = Literal["integers", "small", "even", "dropout", "batchnorm", "branches", "tied", "tokens", "pairs"]
Precision = Literal["float64", "float32", "bfloat16"]
Rates = Literal["constant", "steps", "plateau"]
Parallelism = Literal["ddp", "fsdp2", "hsdp", "ddp-tp"]
Act = Literal["train", "kill", "kill-in-save", "raise"]

SHARDED: tuple[Parallelism, ...] = ("fsdp2", "hsdp", "ddp-tp")
ALONG: dict[Parallelism, str] = {"hsdp": "replicate", "ddp-tp": "dp"}
"""The dimension of the mesh along which there are copies of the model."""

LOSS_KINDS: tuple[LossKind, ...] = ("samples", "tokens", "pairs")


OTHER = {2: 4, 4: 2}
"""From how many ranks a training goes on in so many, where the number is another."""


class Size(Struct, frozen=True, kw_only=True):
    """A number of samples: so many for each rank, and some more."""

    each: int
    more: int = 0

    def at(self, world_size: int) -> int:
        return self.each * world_size + self.more


class Situation(Struct, frozen=True, kw_only=True):
    """One training, up to the number of ranks."""

    name: str
    about: str
    """What is particular of it, as a noun phrase."""
    net: Net = "small"
    loss: LossKind = "samples"
    parallelism: Parallelism = "ddp"
    size: Size = Size(each=18)
    batch_size: int = 6
    batch_of_all: int = 0
    """Samples in a micro-batch of all ranks together, where these are to be the same in any number of ranks."""
    epochs: int = 2
    accumulation: int = 1
    clip_norm: float | None = None
    shuffle: bool = True
    drop_last: bool = False
    iterable: bool = False
    sampler: bool = False
    """The order is that of a sampler of the suite's, with samples that come twice."""
    augmented: bool = False
    """Each sample carries a random number that is drawn when it is loaded."""
    workers: int = 0
    optimizer: Literal["sgd", "momentum", "adamw"] = "momentum"
    rates: Rates = "constant"
    precision: Precision = "float64"
    validation: int = 0
    """Samples to evaluate on after each epoch."""
    save_every: int | None = None
    """Optimizer steps from one checkpoint to the next."""
    at: Act = "train"
    at_step: int = 0
    """Optimizer steps after which it is killed, or raises."""
    two_nodes: bool = False
    """The environment says that the ranks are on two machines."""
    devices: bool = False
    """Each rank has a GPU of its own, simulated; as under torchrun, the first one is current everywhere."""
    exact: bool = False
    """All its numbers are short binary fractions: nothing is rounded where the world size is a power of two."""
    world_sizes: tuple[int, ...] = ()
    """Where it makes sense; empty for all."""
    resumed_from: str = ""
    """The situation, killed, whose checkpoint this one goes on from."""
    in_other_ranks: bool = False
    """It goes on in another number of ranks than the checkpoint was saved in."""

    def in_ranks(self, world_size: int) -> Situation:
        """This one, with the batches that it has in so many ranks."""
        return replace(self, batch_size=self.batch_of_all // world_size) if self.batch_of_all else self

    def saved_in(self, world_size: int) -> int:
        """In how many ranks the checkpoint was saved that it goes on from in so many."""
        return OTHER[world_size] if self.in_other_ranks else world_size

    def micro_batches(self, world_size: int) -> tuple[int, ...]:
        """How many micro-batches an epoch may have on every rank; samplers that even ranks out differ in drop_last."""
        size, readers = self.size.at(world_size), len(self.readers(world_size))
        if not self.drop_last:
            return (-(-size // (readers * self.batch_size)),)
        dropped = size // readers // self.batch_size
        return tuple(sorted({dropped, -(-size // readers) // self.batch_size}))

    def readers(self, world_size: int) -> range:
        """The ranks that take samples of their own; each of the others takes those of the one before it."""
        return range(0, world_size, 2 if self.parallelism == "ddp-tp" else 1)

    def fits(self, world_size: int) -> bool:
        """Whether it makes sense in so many ranks."""
        return not self.world_sizes or world_size in self.world_sizes

    @property
    def finds_unused(self) -> bool:
        """Some parameters get no gradient in some steps."""
        return self.net == "branches"


UNEVEN = Size(each=15, more=1)
"""What neither world sizes nor batches divide."""

WINDOW = 5
"""Micro-batches of an optimizer step: no world size, and no product of world sizes, so that factors tell them apart."""

TWO_WINDOWS = Size(each=60)


def _interrupted(whole: Situation, killed: int, in_save: int | None = None) -> list[Situation]:
    """A training; the same, killed after so many steps, and gone on with; and so, killed in the save after so many."""
    suffix = whole.name.removeprefix("long")
    acts: list[tuple[str, str, Act, int]] = [(suffix, " that is killed in the middle of an epoch", "kill", killed)]
    if in_save is not None:
        acts.append((f"-in-save{suffix}", " that is killed while it saves", "kill-in-save", in_save))
    found = [replace(whole, about=f"{whole.about} that is not interrupted")]
    for name, what, act, step in acts:
        one = replace(whole, name=f"killed{name}", about=whole.about + what, at=act, at_step=step)
        resumed = f"{whole.about} that goes on after a kill" + (" in its save" if act == "kill-in-save" else "")
        found += [one, replace(whole, name=f"resumed{name}", about=resumed, resumed_from=one.name)]
    return found


def _sharded(parallelism: Parallelism, about: str, world_sizes: tuple[int, ...], net: Net = "small") -> list[Situation]:
    """What is trained of a model that the trainer is to shard."""
    plain = Situation(
        name=parallelism, about=about, net=net, parallelism=parallelism, size=UNEVEN, world_sizes=world_sizes
    )
    together = replace(
        plain,
        name=f"{parallelism}-accumulation-clipping",
        about=f"{about}, with gradients that are accumulated and then clipped",
        size=TWO_WINDOWS,
        accumulation=WINDOW,
        clip_norm=0.05,
    )
    long = replace(
        plain,
        name=f"long-{parallelism}",
        about=about,
        optimizer="adamw",
        rates="steps",
        size=Size(each=30),
        save_every=2,
    )
    return [plain, together, *_interrupted(long, killed=5)]


def _resharded(parallelism: Parallelism, about: str) -> list[Situation]:
    """What goes on in another number of ranks: each step has the same samples in all of them."""
    whole = Situation(
        name=f"long-{parallelism}-reshard",
        about=about,
        parallelism=parallelism,
        optimizer="adamw",
        size=Size(each=0, more=120),
        batch_of_all=12,
        save_every=2,
        world_sizes=tuple(OTHER),
    )
    long, killed, resumed = _interrupted(whole, killed=5)
    told = f"{resumed.about}, in another number of ranks"
    return [long, killed, replace(resumed, about=told, in_other_ranks=True)]


SITUATIONS: tuple[Situation, ...] = (
    Situation(
        name="exact",
        about="arithmetic without rounding",
        net="integers",
        size=Size(each=16),
        batch_size=8,
        optimizer="sgd",
        exact=True,
    ),
    Situation(name="plain", about="an ordinary training", size=UNEVEN, epochs=3),
    Situation(name="in-order", about="data that is not shuffled", size=UNEVEN, shuffle=False),
    Situation(name="drop-last", about="a last batch that is to be dropped", size=UNEVEN, drop_last=True),
    Situation(name="few-samples", about="fewer samples than fill a batch on every rank", size=Size(each=0, more=5)),
    Situation(name="iterable", about="an iterable dataset", iterable=True, shuffle=False),
    Situation(
        name="iterable-uneven",
        about="an iterable dataset that the ranks cannot share evenly",
        size=Size(each=12, more=1),  # without padding, one rank has a batch more
        iterable=True,
        shuffle=False,
    ),
    Situation(
        name="iterable-workers",
        about="an iterable dataset that workers read, each its part of it",
        iterable=True,
        shuffle=False,
        workers=2,
        size=Size(each=24),
        epochs=1,
    ),
    Situation(name="sampler", about="a sampler of the user's own", sampler=True, shuffle=False),
    Situation(name="accumulation", about="gradient accumulation", size=TWO_WINDOWS, accumulation=WINDOW),
    Situation(
        name="accumulation-tail",
        about="gradient accumulation with a last window that is not full",
        size=Size(each=42),
        accumulation=WINDOW,
        optimizer="sgd",
    ),
    Situation(name="clipping", about="gradients that are clipped", clip_norm=0.05),
    Situation(
        name="accumulation-clipping",
        about="gradients that are accumulated and then clipped",
        size=TWO_WINDOWS,
        accumulation=WINDOW,
        clip_norm=0.05,
    ),
    Situation(name="batchnorm", about="a model with BatchNorm", net="batchnorm"),
    Situation(name="dropout", about="a model with dropout", net="dropout"),
    Situation(
        name="branches", about="a model with branches that some batches do not use", net="branches", optimizer="sgd"
    ),
    Situation(name="tied", about="a model with shared and frozen weights", net="tied"),
    Situation(
        name="schedule",
        about="AdamW, and a learning rate that changes at every step",
        optimizer="adamw",
        rates="steps",
        epochs=3,
    ),
    Situation(
        name="schedule-accumulation",
        about="accumulation with a short last window, clipping and a schedule",
        size=Size(each=42),
        accumulation=WINDOW,
        clip_norm=0.05,
        rates="steps",
    ),
    Situation(
        name="plateau",
        about="a learning rate that falls where the validation loss does not",
        rates="plateau",
        epochs=4,
        validation=8,
        size=Size(each=12),
    ),
    Situation(name="float32", about="single precision", precision="float32"),
    Situation(name="bfloat16", about="bfloat16 autocast", precision="bfloat16"),
    Situation(name="tokens", about="samples with unequal numbers of tokens", net="tokens", loss="tokens"),
    Situation(
        name="tokens-accumulation",
        about="unequal numbers of tokens, accumulated",
        net="tokens",
        loss="tokens",
        size=Size(each=30),
        accumulation=WINDOW,
    ),
    Situation(name="pairs", about="a loss over the pairs of the global batch", net="pairs", loss="pairs"),
    Situation(
        name="augmentation",
        about="augmentation in the loader's workers",
        augmented=True,
        workers=2,
        epochs=2,
        size=Size(each=12),
    ),
    Situation(name="validation", about="a validation set that the ranks cannot share evenly", validation=11),
    Situation(name="few-validation", about="fewer samples to validate than ranks", validation=3, size=Size(each=12)),
    Situation(name="raises", about="a loss that raises on the last rank", at="raise", at_step=1),
    Situation(
        name="two-nodes", about="ranks on two nodes", size=UNEVEN, two_nodes=True, save_every=2, world_sizes=(4,)
    ),
    *_interrupted(
        Situation(
            name="long",
            about="a training",
            net="batchnorm",
            optimizer="adamw",
            rates="steps",
            size=Size(each=30),
            save_every=2,
        ),
        killed=7,
        in_save=4,
    ),
    *_interrupted(
        Situation(
            name="long-accumulation",
            about="a training with accumulation",
            size=Size(each=30),
            accumulation=2,  # steps are not micro-batches, and the last window of an epoch is short
            save_every=2,
        ),
        killed=5,
    ),
    *_interrupted(
        Situation(
            name="long-epoch-end",
            about="a training that saves at the end of an epoch, before it evaluates,",
            size=Size(each=12),
            epochs=3,
            rates="plateau",
            validation=8,
            save_every=2,
        ),
        killed=5,
    ),
    *_interrupted(
        Situation(
            name="long-random",
            about="a training with dropout and augmentation",
            net="dropout",
            augmented=True,
            size=Size(each=30),
            save_every=2,
        ),
        killed=5,  # when two checkpoints were saved: what is restored has to be of the newer one
    ),
    *_interrupted(
        Situation(
            name="long-devices",
            about="a training on a simulated GPU of each rank",
            size=Size(each=12),
            save_every=1,
            devices=True,
            world_sizes=(2,),
        ),
        killed=2,
    )[1:],
    *_sharded("fsdp2", "a training of a model that FSDP2 shards", ()),
    *_resharded("fsdp2", "a training of a model that FSDP2 shards"),
    *_sharded("hsdp", "a training of a model that FSDP2 shards over two ranks, in two copies", (4,)),
    *_sharded("ddp-tp", "a training of a model that tensor parallelism cuts in two, in two copies", (4,), net="even"),
)

BY_NAME: dict[str, Situation] = {situation.name: situation for situation in SITUATIONS}


def curriculum(number: int) -> list[int]:
    """The order of the sampler that a user may have, over so many samples: from the last on, every third one twice."""
    order = [index for index in reversed(range(number)) for _ in range(2 if index % 3 == 0 else 1)]
    return order[:number]  # as many as there are samples: lengths stay what the sizes imply


START = {"adamw": 0.01, "momentum": 0.05, "sgd": 0.0625}
"""The learning rate that each optimizer begins with."""


def decay(step: int) -> float:
    """By what a scheduler multiplies it: by another number at every step, which so says what step it belongs to."""
    return float(0.9**step)


def rates(situation: Situation, steps: int) -> list[float]:
    """The learning rates of the first steps, where the scheduler is stepped once after each."""
    start = START[situation.optimizer]
    return [start * (decay(step) if situation.rates == "steps" else 1.0) for step in range(steps)]
