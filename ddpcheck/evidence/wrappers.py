"""DistributedDataParallel: how wrappers are built and used, and what they hold."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.record import NO_SITE, Record


class Tensors(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Tensors by name, side by side: equal bytes have equal digests, eight bytes each; or ABSENT, or UNSEEN."""

    names: list[str] = msgspec.field(default_factory=list)
    digests: bytes = b""


class Wrapped(Record, frozen=True, kw_only=True):
    """A DDP wrapper was built."""

    wrapper: int
    """The wrappers of this process, counted."""
    kind: str
    """The class of the module inside."""
    site: int
    parameters: Tensors
    buffers: Tensors
    buffer_owners: list[str]
    """The class of the module that owns each buffer."""
    local_buffers: list[str]
    """Buffers that are not persistent."""
    order: list[str]
    """The names of the parameters, in the order in which DDP broadcasts and reduces them."""
    ignored: list[str]
    """Parameters and buffers that the user told DDP to ignore."""
    broadcast_buffers: bool
    devices: list[str]
    """Of the module's parameters."""
    device_ids: list[int] | None
    shared: list[str]
    """Parameters in memory that other processes may write to."""
    group: str = "world"
    module: int = -1
    """The number of the module inside."""
    parts: list[int] = msgspec.field(default_factory=list)
    """The numbers of its parts that had one already, as what was evaluated has; its own is among them."""
    find_unused: bool = False
    """find_unused_parameters."""
    before: bytes = b""
    """Digests of the parameters before they were made those of one rank."""
    filled: list[int] = msgspec.field(default_factory=list)
    """The places of those that were a constant."""


class PartClass(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The class of some part of a wrapped module."""

    name: str
    users: bool
    """It is the user's own, and not a library's."""
    site: int = NO_SITE
    """The first line of its constructor, where it has one of its own."""


class Modules(Record, frozen=True, kw_only=True):
    """Of what modules a wrapped one is made, and which lines have set their parameters: told with its wrapper."""

    wrapper: int
    classes: list[PartClass]
    parts: dict[str, int]
    """By the path of each module that has parameters or buffers, and of those around it, the place of its class."""
    lines: list[int]
    """For each parameter, in the order in which the wrapper names them, the line that has set it."""


class Placed(Record, frozen=True, kw_only=True):
    """Where the parameters of a wrapped module really are: written where they are on GPUs, or in shared memory."""

    wrapper: int
    hardware: dict[str, str]
    """By device: what names the GPU itself, under whatever number this process sees it."""
    memory: dict[str, str]
    """By parameter in shared memory: the device and inode of that memory."""
    sharing: bool = False
    """The environment tells NCCL that ranks share GPUs on purpose."""


class Moved(Record, frozen=True, kw_only=True):
    """A wrapped module was converted after it had been wrapped: ``.to()``, ``.double()``, ``.cpu()``."""

    wrapper: int
    site: int
    function: str


class Attributes(Record, frozen=True, kw_only=True):
    """Plain numbers and text among a wrapped module's attributes, at one of an optimizer's first steps with it."""

    wrapper: int
    values: dict[str, str]
    site: int


class Replaced(Record, frozen=True, kw_only=True):
    """A parameter was registered in a module that was wrapped already."""

    name: str
    site: int


class Usage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What became of one wrapper between two steps of an optimizer that updates its parameters."""

    wrapper: int
    forwards: int = 0
    """Through the wrapper, with gradients enabled."""
    armed: int = 0
    """Of these, the ones that made the next backward reduce."""
    reached: int = 0
    """Armed forwards whose output a backward came through."""
    backwards: int = 0
    """backward() calls while it was armed."""
    same_line: int = 0
    """The most of these by one line."""
    backward_site: int = NO_SITE
    forward_site: int = NO_SITE
    bare_site: int = NO_SITE
    """Where ``.module`` was last taken with gradients enabled."""
    no_sync: int = 0
    """Times that no_sync() was entered."""
    no_sync_forwards: int = 0
    no_sync_site: int = NO_SITE
    sync_flag_site: int = NO_SITE
    """The backward() at which ``require_backward_grad_sync`` was another than at its forward, outside of no_sync()."""
    after: bytes = b""
    """Digests of the wrapper's gradients when the last backward() had ended, in the wrapper's order; may be empty."""
    last_armed: bool = True
    """The last of the forwards was one of the armed ones."""


class Synced(Record, frozen=True, kw_only=True):
    """The buffers of a wrapper at two moments: when DDP had broadcast them, or when a step had been made."""

    passing: ClassVar[bool] = True

    wrapper: int
    moment: Literal["broadcast", "step", "evaluation"]
    number: int
    """How many there were of this moment."""
    digests: bytes
    site: int
    names: list[str] = msgspec.field(default_factory=list)
    """The buffers, where they are not the ones that the wrapper had when it was built."""


class Evaluated(Record, frozen=True, kw_only=True):
    """A module was called without gradients, by itself or through its wrapper: its state at that moment."""

    kind: str
    number: int
    """Optimizer steps that the process had made."""
    parameters: Tensors
    buffers: Tensors
    """Empty where it was called through its wrapper, which may be about to broadcast them."""
    site: int
    wrapper: int | None = None
    """The wrapper that its parameters belong to, where there is one."""
    module: int = -1
    """The modules of this process, counted as they are met."""
    stepped: bool = False
    """An optimizer updates parameters of it, which are in no wrapper."""


class EvaluatedOnData(Record, frozen=True, kw_only=True):
    """Before the first step, a module in no wrapper was evaluated on many different inputs: it was no dry run."""

    module: int
    site: int
