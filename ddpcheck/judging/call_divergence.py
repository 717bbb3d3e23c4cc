"""The ranks' collectives side by side, group by group: the first place where they part, and what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.evidence import PAIRWISE, UNNAMED
from ddpcheck.judging.happens_before import TO_ONE, UNFINISHED, WAIT, members
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Struct
from ddpcheck.vocabulary.wording import count

Calls = dict[int, ev.Call]
"""The calls of one rank on one group, by their number."""

Key = tuple[str, str, int | None]
"""What matching calls have in common: operation, sizes and types, source or destination."""

NAMES = {
    "ddp-construct": "DDP's constructor",
    "ddp-buffers": "DDP's broadcast of buffers in a forward",
    "ddp-buckets": "DDP's exchange of its buckets in a forward",
    "ddp-gradients": "DDP's reduction of gradients in a backward",
    "join": "the end of join()",
}


_USUAL = {"ddp-gradients": 2, "ddp-buckets": 2, "barrier": 1}
"""What all ranks are most often meant to come to: where nothing else tells, the one elsewhere is the exception."""


class Parting(Struct, frozen=True, kw_only=True):
    """Where the ranks' calls on one group are no longer the same."""

    kind: Literal["op", "detail", "peer", "missing", "line"]
    """``missing``: a rank has ended well, and not made a call that others began; ``line``: the calls match, and come
    from lines that the ranks call in different orders."""
    group: str
    number: int
    calls: dict[int, ev.Call]
    """By rank; none for one that has not come so far."""
    odd: tuple[int, ...]
    """The ranks that are the exception."""
    compared: int = 0
    """How many calls were the same before it."""
    from_other_lines: int = 0
    """How many of these the ranks made at different lines."""

    @property
    def at(self) -> float:
        """When it first could be seen."""
        return max((call.at for call in self.calls.values()), default=0.0)

    @property
    def link(self) -> str:
        return f"call {self.group} {self.number}"


def name(call: ev.Call) -> str:
    """What a call is, in words."""
    if call.op in NAMES:
        return NAMES[call.op]
    return f"{call.op}({call.detail.removesuffix(UNNAMED)})"


def group_name(group: str) -> str:
    """What a group is, in words."""
    return "the default group" if group == "world" else f"the group of ranks {group.partition('#')[0]}"


def place(rank: Rank, call: ev.Call) -> str:
    """Where a call was made, in words."""
    where = rank.where(call.site)
    return f" at {where.file}:{where.line}" if where else ""


def callers(world: World, sites: Mapping[int, int]) -> dict[int, CallSite]:
    """Who has called, of ranks that are at one line by different ways: the outermost line that is not the same."""
    places = {r.rank: where for r in world if (where := r.where(sites.get(r.rank, ev.NO_SITE))) is not None}
    found = {}
    for rank, place in places.items():
        for other in places.values():
            if other == place and other.chain != place.chain:
                pairs = zip(place.chain, other.chain, strict=False)
                found[rank] = next((mine for mine, its in pairs if mine != its), place)
                break
    return {rank: caller for rank, caller in found.items() if caller != places[rank]}


def telling_lines(world: World, sites: Mapping[int, int]) -> dict[int, CallSite]:
    """The lines of ranks' calls, or those that led to them where the calls themselves are at one line."""
    places = {r.rank: where for r in world if (where := r.where(sites.get(r.rank, ev.NO_SITE))) is not None}
    return places | callers(world, sites)


def by_way_of(caller: CallSite | None) -> str:
    """Who has called, in words."""
    return f" (called at {caller.file}:{caller.line})" if caller is not None else ""


@once_per_world
def sequences(world: World) -> dict[str, dict[int, Calls]]:
    """The calls that have to be the same, by group, rank and number."""
    found: dict[str, dict[int, Calls]] = {}
    for rank in world:
        wrappers: dict[tuple[str, str], int] = {}
        for call in rank.of(ev.Call):
            if call.op in PAIRWISE or call.op in (WAIT, UNFINISHED) or call.joined or call.group == "?":
                continue
            if call.op.startswith("ddp-"):
                # Wrappers are counted by process; one of a group that others are not in makes no difference to them.
                known = (call.group, call.detail)
                if known not in wrappers:
                    wrappers[known] = sum(1 for group, _ in wrappers if group == call.group)
                call = _with_detail(call, f"wrapper {wrappers[known]}")
            found.setdefault(call.group, {}).setdefault(rank.rank, {})[call.number] = call
    return found


def _with_detail(call: ev.Call, detail: str) -> ev.Call:
    if call.detail == detail:
        return call
    return ev.Call(
        n=call.n, at=call.at, op=call.op, group=call.group, number=call.number, detail=detail, site=call.site,
        peer=call.peer, waits=call.waits,
    )  # fmt: skip


def keys(calls: Mapping[int, ev.Call]) -> dict[int, Key]:
    """What calls that meet have to have in common, by rank.

    Objects have to meet objects; tensors may come by whichever function, and by
    one that was not given the reduction by its name.
    """
    shown = any(call.detail.endswith(UNNAMED) for call in calls.values())
    return {
        r: (
            call.op if "object" in call.op else call.operation,
            call.detail.rpartition(" ")[0] if shown and "reduce" in call.operation else call.detail,
            call.peer,
        )
        for r, call in calls.items()
    }


def partings(world: World, found: Mapping[str, Mapping[int, Calls]] | None = None) -> list[Parting]:
    """The first parting of each group, the earliest first."""
    found = sequences(world) if found is None else found
    ranks = {rank.rank: rank for rank in world}
    each = (_parting(world, ranks, group, calls) for group, calls in found.items())
    return sorted((one for one in each if one is not None), key=lambda one: one.at)


def compared(found: Mapping[str, Mapping[int, Calls]]) -> int:
    """How many calls are on record, with all that has to be equal, of all ranks that called anything on their group."""
    total = 0
    for calls in found.values():
        if len(calls) > 1:
            numbers = set.intersection(*(set(own) for own in calls.values()))
            total += sum(not any(own[n].detail.endswith(UNNAMED) for own in calls.values()) for n in numbers)
    return total


def _parting(world: World, ranks: Mapping[int, Rank], group: str, found: Mapping[int, Calls]) -> Parting | None:
    present = [r for r in members(group, world.world_size) if r in ranks]
    if len(present) < 2:
        return None
    calls = {r: found.get(r, {}) for r in present}
    last = {r: max(own, default=0) for r, own in calls.items()}
    compared = other_lines = 0
    for number in sorted(set().union(*calls.values())):
        here = {r: own[number] for r, own in calls.items() if number in own}
        if len(set(keys(here).values())) > 1:
            parting = _mismatch(world, group, number, here)
            break
        if len(here) < len(present):
            short = tuple(r for r in present if r not in here and last[r] < number and _ended_well(ranks[r]))
            if short:
                parting = Parting(kind="missing", group=group, number=number, calls=here, odd=short)
                break
        else:
            compared += 1
            other_lines += len({_line(ranks[r], call) for r, call in here.items()}) > 1
    else:
        return None
    return replace(parting, compared=compared, from_other_lines=other_lines)


def _ended_well(rank: Rank) -> bool:
    """It has come to its end by itself, all of it on record: no more calls would have come."""
    if rank.process.incomplete or rank.last(ev.Raised) is not None:
        return False
    if rank.of(ev.Left):
        return True
    ended = rank.last(ev.Ended)
    return ended is not None and ended.how == "exit" and not ended.code and rank.exit_code in (None, 0)


def _mismatch(world: World, group: str, number: int, here: dict[int, ev.Call]) -> Parting:
    kinds: tuple[Literal["op", "detail", "peer"], ...] = ("op", "detail", "peer")
    kind = next(k for k, part in zip(kinds, zip(*keys(here).values(), strict=True), strict=True)
                if len(set(part)) > 1)  # fmt: skip
    return Parting(kind=kind, group=group, number=number, calls=here, odd=_odd(world, here, kind))


def _odd(world: World, here: Mapping[int, ev.Call], kind: str) -> tuple[int, ...]:
    """The ranks that differ from most; where there are as many of both, those at a line of their own."""
    place = {"op": 0, "detail": 1, "peer": 2}[kind]
    parts = {r: one[place] for r, one in keys(here).items()}
    (most, often), *others = Counter(parts.values()).most_common()
    if often > others[0][1]:
        return tuple(r for r in parts if parts[r] != most)
    ranks = {rank.rank: rank for rank in world if rank.rank in here}
    lines = {r: {_line(rank, call) for call in rank.of(ev.Call)} for r, rank in ranks.items()}
    alone = [r for r in here if not any(_line(ranks[r], here[r]) in lines[o] for o in here if parts[o] != parts[r])]
    sides = {parts[r] for r in alone}
    one = sides.pop() if len(sides) == 1 else parts[min(here, key=lambda r: (_USUAL.get(here[r].op, 0), -r))]
    return tuple(r for r in here if parts[r] == one)


def _line(rank: Rank, call: ev.Call) -> tuple[str, int, str]:
    where = rank.where(call.site)
    return (where.file, where.line, call.op) if where else ("", 0, call.op)


def visits(rank: Rank, where: CallSite | None, before: float) -> int:
    """How many calls a rank has made at a line before a record."""
    if where is None:
        return 0
    sites = {s.id for s in rank.process.of(ev.Site) if (s.file, s.line) == (where.file, where.line)}
    return sum(1 for call in rank.of(ev.Call) if call.site in sites and call.n < before)


# --- told


def _way(call: ev.Call) -> str:
    return "to" if call.operation in TO_ONE else "from"


def told(world: World, parting: Parting) -> str:
    """What each rank does at the parting, in words."""
    parts = []
    called = callers(world, {r: call.site for r, call in parting.calls.items()})
    for rank in world:
        call = parting.calls.get(rank.rank)
        if call is not None:
            way = f" {_way(call)} rank {call.peer}" if parting.kind == "peer" and call.peer is not None else ""
            parts.append(
                f"rank {rank.rank} calls {name(call)}{way}{place(rank, call)}{by_way_of(called.get(rank.rank))}"
            )
        elif rank.rank in parting.odd:
            parts.append(f"rank {rank.rank} makes no further call")
    return "; ".join(parts)


def before(parting: Parting) -> str:
    """How far it went well, in words."""
    equal = parting.compared - parting.from_other_lines
    found = [count(equal, "equal call")] if equal else []
    if parting.from_other_lines:
        found.append(f"{count(parting.from_other_lines, 'matching call')} from different lines")
    if found:
        return f"after {' and '.join(found)} on {group_name(parting.group)}"
    first = "the first call" if parting.number == 1 else f"call {parting.number}"
    return f"at {first} on {group_name(parting.group)}"


def proof(world: World, parting: Parting) -> Iterator[tuple[int, CallSite]]:
    """Each rank's line at the parting."""
    for rank in world:
        if rank.rank in parting.calls:
            yield from rank.proof(parting.calls[rank.rank].site)
