"""Who waits for whom, and whether it can ever come: read from the ranks' pulses and calls, also while they run."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.evidence import PAIRWISE, RECEIVES, SENDS
from ddpcheck.judging.call_divergence import keys
from ddpcheck.judging.device_waits import beside, device_wait
from ddpcheck.judging.happens_before import FROM_ONE, NEW_GROUP, TO_ONE, UNFINISHED, WAIT, members, source
from ddpcheck.judging.world import Moment, Process, Rank, World
from ddpcheck.vocabulary.model import Struct

LOCKED = 3.0
"""Seconds after which a rank has told where it waits, unless it cannot."""
SETTLED = 1.0
"""Seconds that a rank must have been told to wait for: a pulse is a look at a moment, and it may have gone on since."""
BY_THE_AGENT = (signal.SIGTERM, signal.SIGKILL)
"""How an agent ends ranks when another has failed, or a program that hangs."""
_AT_THE_END = ("_shutdown", "_exit_function", "_run_exitfuncs", "join_all_non_daemon_threads")
"""Functions in which the main thread has left the user's program."""


class Wait(Struct, frozen=True, kw_only=True):
    """A rank that waits in a call."""

    rank: int
    call: ev.Call
    """What it waits in: of a ``wait``, the call that it waits for."""
    site: int
    since: float | None
    lacking: tuple[int, ...] = ()
    """The ranks that have not come to this call."""
    every: bool = True
    """It takes all of these, and not one."""
    on_device: bool = False
    """Its device waits in the call, which was queued on it."""
    host: int = ev.NO_SITE
    """Of such a rank: where its main thread stands."""
    awaits: str = ""
    """And the function that waits for the device there; empty where it may do something else."""
    held: bool = True
    """The rank can do nothing else until the call is over."""


class Stuck(Struct, frozen=True, kw_only=True):
    """Ranks that wait for what can come no more."""

    waits: tuple[Wait, ...]
    gone: tuple[int, ...]
    """Ranks that will not come to anything."""

    def __bool__(self) -> bool:
        return True


_LONG = ("ddp-gradients",)
"""Queued calls in which the host has much to do itself."""


def waiting(rank: Rank, world: World) -> Wait | None:
    """The call in which a rank waits, by the last that is known of it; of one that runs, only if it has for a while."""
    told = _told(rank, world.now) or _locked(rank, world)
    on_device = _on_device(rank, world, told)
    if on_device is None:
        return told
    # The device comes first to what was queued first; but what all have come to is not what is missing.
    ranks = {one.rank: one for one in world}
    return on_device if told is None or lacking(world, ranks, on_device).lacking else told


def _on_device(rank: Rank, world: World, told: Wait | None) -> Wait | None:
    """The queued call that its device waits in."""
    found = device_wait(rank, world.now)
    call = _call(rank, found.call) if found is not None else None
    if found is None or call is None:
        return None
    # A host that waits in a call of its own may come out of it, and go on to what others wait for.
    held = bool(found.awaits) and told is None
    # An asynchronous one may be done, where that takes nobody else: its device may compute what was queued behind it.
    held = held and (call.waits or not _returns_at_once(call, rank.rank, world))
    host = told.site if told is not None else found.host
    return Wait(
        rank=rank.rank, call=call, site=call.site, since=found.since, on_device=True, host=host, awaits=found.awaits,
        held=held,
    )  # fmt: skip


def _told(rank: Rank, now: Moment | None) -> Wait | None:
    """What its last pulse tells."""
    pulse = rank.process.last(ev.Pulse)
    if pulse is None or pulse.pending is None:
        return None  # this is asked several times a second: the records of a long run are not gone through
    latest = 0
    for record in reversed(rank.process.records):
        if record is pulse:
            break
        if not beside(record):
            latest = max(latest, record.n)
    # A call may be written down late: what is newer is told by its number, and not by its place.
    if latest > pulse.pending:
        return None
    if not rank.start <= pulse.pending < rank.end:
        return None
    if now is not None and 0 <= now.on(rank.process) - pulse.at < SETTLED:
        return None
    call = _call(rank, pulse.pending)
    if call is None:
        return None
    made = (_call(rank, call.of) if call.of is not None else None) or call
    # A queued call returns at once, but for the first of its group, in which the ranks look for each other.
    held = not call.queued or (call.number == 1 and call.op not in _LONG)
    return Wait(rank=rank.rank, call=made, site=call.site, since=pulse.since, held=held)


def _locked(rank: Rank, world: World) -> Wait | None:
    """A call of which nothing was heard any more: native code waits in it, and keeps the interpreter to itself.

    What tells where a rank is runs in that interpreter. The rank may as well
    have gone on, and be computing without a word; but not where the call takes
    ranks that have not come to it.
    """
    seen = world.now or world.stopped
    call = rank.process.last(ev.Call)
    if seen is None or call is None or call.thread or not rank.start <= call.n < rank.end:
        return None
    if not call.waits or call.queued:
        return None
    if seen.on(rank.process) - call.at < LOCKED or _returns_at_once(call, rank.rank, world):
        return None
    for record in reversed(rank.process.records):
        if record is call:
            break
        at_its_beginning = isinstance(record, ev.Pulse) and record.pending is None and record.at < call.at + SETTLED
        if record.n > call.n and not (at_its_beginning or beside(record)):
            return None
    made = (_call(rank, call.of) if call.of is not None else None) or call
    wait = Wait(rank=rank.rank, call=made, site=call.site, since=call.at)
    found = lacking(world, {one.rank: one for one in world}, wait)
    return wait if found.lacking and found.every else None


def _returns_at_once(call: ev.Call, rank: int, world: World) -> bool:
    """Whether a call may be over for a rank before the others come to it."""
    one = source(call, members(call.group, world.world_size))
    what = call.operation
    return call.op in SENDS or (what in FROM_ONE and one == rank) or (what in TO_ONE and one != rank)


def _call(rank: Rank, n: int) -> ev.Call | None:
    for call in reversed(rank.process.of(ev.Call)):
        if call.n == n:
            return call
        if call.n < n - 5000:
            break
    return None


def lacking(world: World, ranks: dict[int, Rank], wait: Wait) -> Wait:
    """Add whom the call still takes."""
    call = wait.call
    if call.op in PAIRWISE:
        others = [call.peer] if call.peer is not None else [r for r in range(world.world_size) if r != wait.rank]
        lacks = [r for r in others if r not in ranks or not _answered(ranks[r], wait.rank, call)]
        return _with(wait, lacks, call.peer is not None)
    present = [r for r in _taking_part(world, call) if r != wait.rank]
    lacks = [r for r in present if r not in ranks or not _came(ranks[r], call)]
    one = source(call, members(call.group, world.world_size))
    if one != wait.rank and (call.operation in FROM_ONE or call.operation in TO_ONE):
        # Others may stand between, where the data go through them: those that have not come are to blame, too.
        return _with(wait, [r for r in lacks if r == one], True) if one in lacks else _with(wait, lacks, False)
    if call.operation in FROM_ONE:
        return _with(wait, lacks, False)
    return _with(wait, lacks, True)


def _taking_part(world: World, call: ev.Call) -> Sequence[int]:
    """The ranks that a call takes; making a group takes those that are to be in it."""
    ranks = call.detail.removeprefix("ranks ").split(",") if call.op == NEW_GROUP else [""]
    return [int(r) for r in ranks] if all(r.isdigit() for r in ranks) else members(call.group, world.world_size)


def _with(wait: Wait, lacks: Iterable[int], every: bool) -> Wait:
    return replace(wait, lacking=tuple(lacks), every=every)


def _since(rank: Rank, call: ev.Call) -> Iterator[ev.Call]:
    """A rank's own calls in the group of a call, from its number on, the latest first."""
    for own in reversed(rank.process.of(ev.Call)):
        if own.n >= rank.end or own.group != call.group or own.op in PAIRWISE or own.op == WAIT or own.joined:
            continue
        if own.n < rank.start or own.number < call.number:
            return
        yield own


def _came(rank: Rank, call: ev.Call) -> bool:
    """Whether a rank has made the same call, or may have: its number is on record with the same name, or is not."""
    later = reduced = False
    for own in _since(rank, call):
        if own.number > call.number:
            later = True
            reduced |= own.op == call.op
        elif own.op == UNFINISHED:
            return reduced  # what it has left over, it may reduce in a later backward
        else:
            mine, asked = (one[:2] for one in keys({0: own, 1: call}).values())
            return mine == asked or (own.op == call.op and own.op.startswith("ddp-"))
    return later


def _answered(rank: Rank, asker: int, call: ev.Call) -> bool:
    """Whether the partner of a send has received it, or that of a receive has sent."""
    receives = call.op in RECEIVES
    for own in reversed(rank.process.of(ev.Call)):
        if own.op not in PAIRWISE or own.group != call.group or own.detail != call.detail:
            continue
        if (own.op in RECEIVES) == receives or own.peer not in (asker, None):
            continue
        return not own.sure or own.number >= call.number or own.peer is None or call.peer is None
    return False


def is_gone(rank: Rank, live: bool = False) -> bool:
    """Whether a rank takes part in nothing any more, other than because somebody has ended it together with all."""
    ended = bool(rank.of(ev.Ended) or rank.of(ev.Left)) or rank.exit_code is not None
    return ended or (rank.signal is not None and (live or rank.alone or rank.signal not in BY_THE_AGENT))


def has_left(process: Process) -> bool:
    """Whether the script of a process is over, or it has left its group and joined no other one since."""
    left, joining = process.last(ev.Left), process.last(ev.Joining)
    is_in_none = left is not None and (joining is None or joining.n < left.n)
    return is_in_none or bool(process.of(ev.Lingering) or process.of(ev.Ended))


def lives_on(rank: Rank, world: World) -> bool:
    """Whether ddpcheck has ended it, although it had come to its end before."""
    ended_by_us = world.stopped is not None and rank.signal in BY_THE_AGENT
    return ended_by_us and rank.end == math.inf and has_left(rank.process)


def last_place(rank: Rank) -> tuple[int, str]:
    """The last line that a rank was seen at, and the innermost function there; the latter may not be known."""
    pulse, left = rank.last(ev.Pulse), rank.last(ev.Left)
    if left is not None and (pulse is None or pulse.n < left.n):
        return left.site, ""
    return (pulse.site, pulse.doing) if pulse is not None else (ev.NO_SITE, "")


def at_its_end(rank: Rank, live: bool = False) -> bool:
    """It is gone; or its script is over, and it waits for its threads."""
    if is_gone(rank, live):
        return True
    pulse = rank.process.last(ev.Pulse)
    return pulse is not None and pulse.doing in _AT_THE_END


def all_waits(world: World) -> dict[int, Wait]:
    """The ranks that wait, each with whom for."""
    ranks = {rank.rank: rank for rank in world}
    found = {}
    for rank in world:
        wait = None if is_gone(rank, world.now is not None) else waiting(rank, world)
        if wait is not None and not wait.call.joined:
            found[rank.rank] = lacking(world, ranks, wait)
    return found


def stuck(world: World, waits: dict[int, Wait], gone: Iterable[int], for_good: Collection[int] = ()) -> Stuck | None:
    """Those of the waiting ranks that can never go on: what they lack is gone, or is stuck itself.

    Every other rank may go on, and whoever lacks only these may as well; what
    is left when nothing more follows is stuck, however long one waits. Those
    ``for_good`` are, whatever the ranks that they lack may still do.
    """
    gone = set(gone)
    may = {r for r in range(world.world_size) if r not in waits and r not in gone}
    more = True
    while more:
        more = False
        for r, wait in waits.items():
            if r not in may and r not in for_good and (
                all(o in may for o in wait.lacking) if wait.every or not wait.lacking
                else any(o in may for o in wait.lacking)
            ):  # fmt: skip
                may.add(r)
                more = True
    left = tuple(wait for r, wait in waits.items() if r not in may)
    return Stuck(waits=left, gone=tuple(sorted(gone))) if left else None


def certain(world: World) -> Stuck | None:
    """Ranks of a world that runs that wait for what can come no more; None while any of them may go on."""
    known = {rank: wait for rank, wait in all_waits(world).items() if wait.call.sure}
    gone = [rank.rank for rank in world if at_its_end(rank, live=True)]
    ranks = {rank.rank: rank for rank in world}
    for_good = [rank for rank, wait in known.items() if _cannot_come(wait, known, ranks, gone)]
    waits = {rank: wait for rank, wait in known.items() if wait.held or rank in for_good}
    if not waits:
        return None
    found = stuck(world, waits, gone, for_good)
    # What the main thread waits for, another thread may bring.
    return None if found is None or any(call.thread for rank in world for call in rank.process.of(ev.Call)) else found


def _cannot_come(wait: Wait, waits: dict[int, Wait], ranks: dict[int, Rank], gone: Collection[int]) -> bool:
    """Whether a device waits in a call that another rank can make no more, whatever its host and the others may do.

    That rank is gone, or waits in another call of this number, or in a later
    one, having made another call of this number: the two have met.
    """
    call = wait.call
    if not wait.on_device or not wait.every or call.op in PAIRWISE:
        return False

    def has_met(rank: int) -> bool:
        other = waits.get(rank)
        if (
            other is None
            or other.call.group != call.group
            or not (other.call.waits and (other.on_device or other.held))
        ):
            return False
        made = next((own.op for own in _since(ranks[rank], call) if own.number == call.number), UNFINISHED)
        return other.call.number == call.number or (other.call.number > call.number and made != UNFINISHED)

    return any(rank in gone or has_met(rank) for rank in wait.lacking)
