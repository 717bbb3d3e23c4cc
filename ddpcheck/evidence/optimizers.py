"""Optimizers, their steps, and schedulers."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.layouts import Layout
from ddpcheck.evidence.record import NO_SITE, Record
from ddpcheck.evidence.wrappers import Usage

UNREAD = -1.0
"""In the place of a number that lies on a device, at a step where asking for it would have meant to wait."""


class Parameter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One parameter that an optimizer updates."""

    name: str
    kind: str
    wrapper: int | None
    """The wrapper that holds it."""
    reduced: bool
    """The wrapper's reducer knows this very object."""
    ignored: bool = False
    shared: bool = False
    late: bool = False
    """It came into the wrapped module after the wrap."""
    in_module: bool = True
    """Some module still has it as a parameter."""
    unseen: str = ""
    """The kind of tensor, where it is one that all ranks are not compared by: a shard, or one without plain memory."""
    unnamed: bool = False
    """No module has ever had it as a parameter."""
    filled: bool = False
    """Its elements are all one number, as far as was looked at."""
    site: int = NO_SITE
    """The line that has set it in its module; only of those that no wrapper has found when it was built."""
    layout: Layout | None = None
    """Which part of a logical tensor it is, where somebody says so; such parts are looked at, whatever their kind."""
    model: int | None = None
    """The model that has it as a parameter, by the number of its Model."""
    path: str = ""
    """Its name in there."""


class LeftOut(Record, frozen=True, kw_only=True):
    """An optimizer steps what is no parameter of a model any more: the model's own that no optimizer has."""

    optimizer: int
    number: int
    """The step."""
    stale: list[int]
    """The places of those that no model has, and that have no gradient."""
    names: list[str]
    """Trainable parameters of models that are in no optimizer, and have a gradient."""
    kinds: list[str]
    """Of these, side by side: dtype and shape."""


class Unstepped(Record, frozen=True, kw_only=True):
    """A step of an optimizer that has parameters of a model, while others of it are in no optimizer that there is."""

    optimizer: int
    number: int
    """The step."""
    model: int
    names: list[str]
    """Trainable parameters of the model with a gradient that is no constant."""
    values: bytes
    """Digests of these, side by side."""
    among: int
    """Trainable parameters of the model, all together."""


NOBODYS = 1 << 20
"""The number of the optimizer that stands at a line of a test where none was seen to step the model."""


class AtLine(Record, frozen=True, kw_only=True):
    """What follows is what a rank of a test holds at a line: its "step" is none of an optimizer's."""


class Optimizer(Record, frozen=True, kw_only=True):
    """An optimizer at its first step, or when its parameters have changed since."""

    optimizer: int
    kind: str
    site: int
    parameters: list[Parameter]
    sharded: bool
    """ZeroRedundancyOptimizer: its state differs between ranks on purpose."""
    values: bytes
    """Digests of the parameters on entry to this step."""
    apart: bool = False
    """The ranks step on gradients of their own, and average their parameters now and then (post-local SGD)."""
    inner: bool = False
    """It was stepped inside of a module's forward."""
    number: int = 0
    """The step on whose entry it was described."""
    groups: list[int] = msgspec.field(default_factory=list)
    """How many parameters each of its groups has, in order: each group has a learning rate."""
    torchs: bool = True
    """One of torch's own, whose state follows from the gradients alone."""
    begun: bool = False
    """It had state before this step, whoever has given it that."""


class Carried(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A collective of the program's own went over a parameter, or over its gradient."""

    place: int
    of: Literal["gradient", "parameter"]
    inside: bool
    """During the step itself, and not between the step before and this one."""
    group: str
    number: int
    """Which of the group's calls between two steps it was: the same on all ranks for one call."""
    offset: int
    """Where in the call's tensor it lies."""
    alike: bool
    """Every rank of the group has the same afterwards."""
    flat: bool = False
    """Told by the size of the call's tensor alone, which is that of all gradients side by side."""
    to_one: bool = False
    """One rank of the group alone has the sum afterwards."""


class Exchanged(Record, frozen=True, kw_only=True):
    """What the program's own collectives do with an optimizer's tensors around each step, from this one on."""

    optimizer: int
    number: int
    """The step."""
    carried: list[Carried]
    lost: bool = False
    """It changes so often that it is written down no more."""
    parts: list[Carried] = msgspec.field(default_factory=list)
    """The same of DTensors: of the part that this rank has."""


class StateOfAnotherWhole(Record, frozen=True, kw_only=True):
    """State that lies as its parameter does, with a part of the same shape, and is declared to be of another whole."""

    optimizer: int
    places: list[int]
    keys: list[str]
    wholes: list[tuple[int, ...]]
    """Side by side: the shape of the whole that each is declared to be a part of."""
    site: int


class AfterExchange(Record, frozen=True, kw_only=True):
    """An optimizer's parameters on entry to a step before which the program itself exchanged tensors of some size.

    A few times for each optimizer, and not where it does so before every step.
    """

    optimizer: int
    number: int
    """The step."""
    values: bytes
    sites: list[int]
    """The lines of these calls, each once, in order."""
    groups: list[str]


class Filled(Record, frozen=True, kw_only=True):
    """What a collective takes from this rank during an optimizer's step, cut into pieces of its parameters' shapes.

    Whether a piece is a parameter, or a gradient, is seen by its elements: it was copied.
    """

    optimizer: int
    number: int
    """The step."""
    op: Literal["gather", "scatter"]
    """Every rank has all pieces afterwards; or one rank the sum of each."""
    group: str
    pieces: bytes
    """Their digests, side by side."""
    site: int


class Transfers(Record, frozen=True, kw_only=True):
    """At the end: what went through this process's own communication in the whole run."""

    of_models: int
    """Calls over parameters or gradients."""
    others: int
    """Calls over anything else that may have been one: more than a few numbers, objects with tensors, or unseen."""


class Step(Record, frozen=True, kw_only=True):
    """One step of an optimizer."""

    share: ClassVar[float] = 0.35
    passing: ClassVar[bool] = True

    optimizer: int
    number: int
    """Steps of this optimizer, from 0."""
    site: int
    gradients: bytes
    """On entry; empty where this step was not looked at."""
    parameters: bytes
    """On exit."""
    whole: bool
    """The digests are of all elements, and not of a part of each tensor."""
    state: dict[str, bytes]
    """By key, digests of the optimizer's state for each parameter; empty where it was not looked at."""
    rates: list[float]
    """Learning rates, group by group; UNREAD among them."""
    scale: float | None
    """The gradient scaler's factor; None without a scaler, and UNREAD where it was not asked for."""
    usage: list[Usage]
    backwards: int
    """backward() calls since the last step of any optimizer."""
    backward_site: int
    collectives: int
    """Collectives of the user's own since the last step."""
    region: int = 0
    """How often ``with model.join():`` was entered or left before: with uneven inputs, steps are counted from there."""
    place: int = 0
    """Steps of this optimizer since then."""


class Scheduled(Record, frozen=True, kw_only=True):
    """A learning-rate scheduler was stepped several times in a row, with no step of its optimizer between."""

    kind: str
    times: int
    site: int
    bursts: int
    """How many rows of this length there were."""


class GroupCounts(Record, frozen=True, kw_only=True):
    """What an optimizer counts in its groups of parameters, beside their rates: by how much it has grown.

    Not on record where nothing has grown on this rank.
    """

    share: ClassVar[float] = 0.01

    optimizer: int
    number: int
    """The step on whose entry it was looked at, counted from the first step on."""
    grown: dict[str, int]
    """By the place of the group and the name of the entry, such as ``0 step``."""


class MovedBetween(Record, frozen=True, kw_only=True):
    """What was written to an optimizer's parameters between one of its steps and the next, by whatever means."""

    share: ClassVar[float] = 0.02

    optimizer: int
    number: int
    """The later step."""
    moved: list[int]
    """The places of parameters with other elements than the step before has left, as far as a few of them tell."""
