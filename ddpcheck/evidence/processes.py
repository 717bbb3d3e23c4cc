"""What a process says of itself: how it began, where it is, what it raised, how it ended."""

from __future__ import annotations

from typing import ClassVar, Literal

from ddpcheck.evidence.record import NO_SITE, Record
from ddpcheck.vocabulary.bounded_numbers import ProcessNumber, Seconds, SignalNumber


class Began(Record, frozen=True, kw_only=True):
    """An interpreter in which torch was imported."""

    pid: ProcessNumber
    parent: ProcessNumber
    host: str
    node: int
    """GROUP_RANK of torchrun; 0 without it."""
    argv: list[str]
    folder: str
    """Its working directory."""
    wall: Seconds
    """Seconds since the epoch at ``at``, to put the clocks of several hosts beside each other."""
    rank: int | None = None
    """RANK of the environment, which a launcher sets; a rank is who joins, and this is for those who never did."""
    worker_of: ProcessNumber | None = None
    """The pid whose DataLoader started this process to load samples."""
    oracle: bool = False
    """What the elements of a loss count is weighed."""
    gpus: bool = True
    """There may be GPUs for it: this torch was built for them, and the machine has a driver."""


class Site(Record, frozen=True, kw_only=True):
    """A line of the user's code, called in one way; other records name it by its number, 1 and up.

    One line has several numbers, where several lines have called its function:
    ``caller`` is another site, so that the sites of a process are a tree.
    """

    id: int
    file: str
    """Relative to the working directory if it lies below it."""
    line: int
    function: str
    text: str
    """The line itself."""
    caller: int = NO_SITE
    """The line of the user's that has called this one's function."""
    through: tuple[str, ...] = ()
    """The installed libraries in which the line's call went on, in this order: ``accelerate: Accelerator.prepare``."""
    first: int = 0
    """The first line of its function; 1 outside of any."""
    body: str = ""
    """The text of the function, with the first of its lines that is told of; empty with all others."""


class Raised(Record, frozen=True, kw_only=True):
    """An exception that ended the program (or the function given to a child process)."""

    unlimited: ClassVar[bool] = True

    kind: str
    message: str
    text: str
    """The whole traceback."""
    site: int
    """The innermost line of the user's."""
    lost_peer: bool
    """It only tells that another rank was gone or did not come."""
    ours: bool = False
    """It came out of a probe's own code, and not out of what the probe stands around."""
    code: int = 1


class Defect(Record, frozen=True, kw_only=True):
    """ddpcheck itself has failed in this process; the program went on without that look."""

    unlimited: ClassVar[bool] = True

    text: str


class Missing(Record, frozen=True, kw_only=True):
    """A seam of :mod:`ddpcheck.seams` is not there: what rests on it cannot be judged."""

    seam: str
    of: str
    """Who should have it: ``torch 2.13.0``."""


class Overlooked(Record, frozen=True, kw_only=True):
    """There was something in this process that no probe has looked at: told once for each kind."""

    what: Literal["calls", "capture", "device", "memory"]
    """Ranks exchanged something that passes through no operator of c10d; a CUDA graph was captured, whose replays call
    no Python; a device had not come to what was asked of it when the process ended; memory did not suffice for a look.
    """


class Looking(Record, frozen=True, kw_only=True):
    """A probe reads the memory of tensors, which a process might not survive: told the first times."""

    over: bool
    """It has."""


class LookCosts(Record, frozen=True, kw_only=True):
    """What all looks at the memory of devices have cost a process; None for what nobody has measured there."""

    unlimited: ClassVar[bool] = True

    looks: int | None = None
    kernels: int | None = None
    bytes: int | None = None
    """Moved in the device's memory, for all reads and writes of these kernels."""
    device_milliseconds: float | None = None
    """Between events before and after them: their own work, and not what they have waited behind."""
    host_milliseconds: float | None = None
    """To queue them, and to write down what they have found."""
    host_waits: int | None = None
    """Times that the program's own thread has waited for a device, for a look's sake."""
    captures: int | None = None
    """CUDA graphs during whose capture a look has been left out."""


class Pulse(Record, frozen=True, kw_only=True):
    """Where the main thread is: written when it is elsewhere than before, or waits; each second while it moves."""

    passing: ClassVar[bool] = True

    site: int
    doing: str
    """The innermost function, a library's included."""
    pending: int | None
    """The ``n`` of the Call in which it waits."""
    since: Seconds | None = None
    """The monotonic clock when it began to wait."""
    device: int | None = None
    """The ``n`` of the oldest Call that was queued and that the device has not finished, once that has lasted."""
    device_since: Seconds | None = None
    """When the device was first seen to wait in it; None while it computes what comes before."""
    awaits: str = ""
    """The function that the main thread has called and stands in, where it is one that waits for the device."""


class Ended(Record, frozen=True, kw_only=True):
    """The last word of a process that came to its end by itself."""

    unlimited: ClassVar[bool] = True

    how: Literal["exit", "os._exit", "exception"]
    code: int | None
    site: int
    groups: int
    """Process groups that were not destroyed."""


class Started(Record, frozen=True, kw_only=True):
    """A thread that is not a daemon, or a child process, was started."""

    kind: Literal["thread", "process"]
    name: str
    pid: ProcessNumber | None
    site: int
    library: bool = False
    """An installed library did it, on behalf of the user's line."""


class Lingering(Record, frozen=True, kw_only=True):
    """The script's own code is over in the main thread: what still runs then, and will be waited for."""

    threads: list[str]
    """Those that are no daemons."""
    children: list[str]
    """Processes that nobody ends by himself: ``pid: command``."""
    blind: bool = False
    """Which processes there are could not be seen."""


class Launched(Record, frozen=True, kw_only=True):
    """torchrun's agent started a rank."""

    pid: ProcessNumber
    rank: int | None
    """RANK, as the rank finds it in its environment."""


class ChildEnded(Record, frozen=True, kw_only=True):
    """A process saw its child end: who, and how."""

    unlimited: ClassVar[bool] = True

    pid: ProcessNumber
    code: int | None
    signal: SignalNumber | None
    asked: bool | None = None
    """This process had asked it to end before; None where that is not known."""


class SentSignal(Record, frozen=True, kw_only=True):
    """This process is about to send a signal, to itself or to another one."""

    unlimited: ClassVar[bool] = True

    pid: int
    """Whom to."""
    signal: SignalNumber
    site: int


class MemoryKills(Record, frozen=True, kw_only=True):
    """How many processes the kernel of this host has ended for want of memory while the ranks ran, by its count."""

    number: int


class Stopped(Record, frozen=True, kw_only=True):
    """ddpcheck itself ends the ranks of this host, which are stuck."""

    why: str


class Silent(Record, frozen=True, kw_only=True):
    """No Python code ran in a process of this host any more when its ranks were ended: no thread got the GIL."""

    pid: ProcessNumber
    seconds: Seconds
    """Since the last sign of life."""


class Computed(Record, frozen=True, kw_only=True):
    """A process of this host has used a core, and not for waiting: what it does may well come to an end."""

    passing: ClassVar[bool] = True

    pid: ProcessNumber


class Signalled(Record, frozen=True, kw_only=True):
    """The run was asked to end from outside: what ended from then on, has ended for that."""

    signal: SignalNumber
