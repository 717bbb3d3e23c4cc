"""Joining and leaving process groups, and the calls of collectives."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from ddpcheck.evidence.record import Record
from ddpcheck.vocabulary.bounded_numbers import RankCount, RankNumber

SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
UNNAMED = " ?"
PAIRWISE = SENDS | RECEIVES
"""Calls between two ranks."""


class Joined(Record, frozen=True, kw_only=True):
    """The process has become a rank: init_process_group has returned."""

    rank: RankNumber
    world_size: RankCount
    token: str
    """The same for all ranks of one default group, and for no other."""
    backend: str
    local_rank: int | None
    site: int
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.rank >= self.world_size:
            raise ValueError("a rank is one of its world")


class JudgedBy(Record, frozen=True, kw_only=True):
    """Rank 0 is on another node: its ddpcheck takes this node's evidence, at this address."""

    address: Annotated[str, msgspec.Meta(pattern=r"\A.+:[0-9]{1,5}:[^:]*\Z")]
    """Host, port and key."""


class Joining(Record, frozen=True, kw_only=True):
    """init_process_group was called, and has not returned yet."""

    rank: int | None
    world_size: int | None
    site: int


class Left(Record, frozen=True, kw_only=True):
    """destroy_process_group of the default group has been called; it may wait for other ranks."""

    unlimited: ClassVar[bool] = True

    site: int


class Outlived(Record, frozen=True, kw_only=True):
    """The default group of NCCL was destroyed while the program held asynchronous calls that it had not waited for."""

    number: int
    """How many there were."""
    op: str
    """The first of them."""
    site: int


class Stored(Record, frozen=True, kw_only=True):
    """A key of a store was set; or a wait for it, or its reading, is over."""

    key: str
    sets: bool


class Call(Record, frozen=True, kw_only=True):
    """A collective (or a step of DDP that communicates) was called; it is done when the rank goes on."""

    share: ClassVar[float] = 0.15
    passing: ClassVar[bool] = True

    op: str
    """``all_reduce``, ``send`` …; ``ddp-construct``, ``ddp-buffers``, ``ddp-buckets``, ``ddp-gradients``."""
    group: str
    """``world``, or the ranks and a number: ``0,2#1``."""
    number: int
    """The calls of this process on this group so far."""
    detail: str
    """What has to be equal on all ranks: dtype and shape, the reduction; the wrapper for ``ddp-…``.

    It ends with UNNAMED where the reduction was not given to a function of torch.distributed, by its name.
    """
    site: int
    peer: int | None = None
    """The source or destination, as a global rank: of broadcast, reduce, scatter, gather, send, recv."""
    waits: bool = True
    """False for async_op=True."""
    joined: bool = False
    """Inside of ``with model.join():``; such calls have no number of their own."""
    of: int | None = None
    """Of a ``wait``: the ``n`` of the asynchronous call that it waits for."""
    thread: str = ""
    """The thread, where it was not the main one."""
    sure: bool = True
    """False for a message with a tag of which earlier ones may have been forgotten: its number may be too low."""
    queued: bool = False
    """It was only queued on a device: the rank goes on at once, and the device does it later."""
    kind: str = ""
    """What it does, where the function that was called has another name: ``all_gather`` for all_gather_object."""

    @property
    def operation(self) -> str:
        """What it does, whichever function was called for it."""
        return self.kind or self.op


class HostAhead(Record, frozen=True, kw_only=True):
    """The main thread is about to do something to a file, and its device has not finished calls that were queued."""

    share: ClassVar[float] = 0.02

    calls: list[int]
    """The ``n`` of these."""


class FlightRecord(Record, frozen=True, kw_only=True):
    """What NCCL's flight recorder said of the oldest collective that was not finished; asked once."""

    call: int
    """The ``n`` of the Call in which the device waited."""
    name: str
    """``nccl:all_reduce``."""
    sizes: list[list[int]]
    """Of what went into it."""
    state: str
    """``scheduled``, ``started`` or ``completed``."""
