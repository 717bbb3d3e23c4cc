"""Where each rank of a hung program stood, and for whom it waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from ddpcheck.judging.call_divergence import group_name
from ddpcheck.judging.happens_before import members
from ddpcheck.judging.standstill import Passed, Stand, Standstill
from ddpcheck.report.page.finding_cards import Excerpt
from ddpcheck.report.source_lines import Sources
from ddpcheck.vocabulary.model import Struct
from ddpcheck.vocabulary.wording import ranks_text


class Stood(Struct, frozen=True, kw_only=True):
    """Ranks that stood alike."""

    ranks: str
    state: str
    """A sentence: in what they waited, or how they ended."""
    waits: bool
    awaited: str = ""
    """For whom, as ranks; empty where that is not known."""
    excerpt: Excerpt | None = None
    doing: str = ""
    last: str = ""


class Parts(Struct, frozen=True, kw_only=True):
    """What some ranks called where others called something else."""

    ranks: str
    call: str
    excerpt: Excerpt | None


def stood(hang: Standstill, sources: Sources) -> list[Stood]:
    """Each kind of standing once."""
    alike: dict[Hashable, list[Stand]] = defaultdict(list)
    for one in hang.stands:
        alike[one.state, one.how, one.where, _call(one.last), _call(one.pending), one.on_device].append(one)
    return [
        Stood(
            ranks=ranks_text(one.rank for one in together),
            state=_state(together),
            waits=together[0].state == "waits",
            awaited=_awaited(hang, together),
            excerpt=_excerpt(together[0], sources),
            doing=together[0].doing,
            last=_call(together[0].last),
        )
        for together in alike.values()
    ]


def parted(hang: Standstill, sources: Sources) -> list[Parts]:
    """The first call of a group that was not the same on all ranks."""
    if hang.parted is None:
        return []
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for rank, call in hang.parted.calls.items():
        alike[(call.name, call.where) if call is not None else None].append(rank)
    found = []
    for ranks in alike.values():
        call = hang.parted.calls[ranks[0]]
        where = call.where if call is not None else None
        found.append(
            Parts(
                ranks=ranks_text(ranks),
                call=call.name if call is not None else "no such call",
                excerpt=Excerpt(where=where, lines=tuple(sources.excerpt(where, 3, 2))) if where is not None else None,
            )
        )
    return found


def _excerpt(stand: Stand, sources: Sources) -> Excerpt | None:
    if stand.where is None:
        return None
    return Excerpt(where=stand.where, lines=tuple(sources.excerpt(stand.where, 3, 2)))


def _state(together: list[Stand]) -> str:
    first = together[0]
    if first.pending is not None:
        waited = max((one.waited for one in together if one.waited is not None), default=0.0)
        since = f", for {waited:.0f}\u00a0s" if waited >= 1 else ""
        if first.on_device:
            at = f", at {first.pending.where}" if first.pending.where is not None else ""
            return f"stands here, and its device waits in {_call(first.pending)}{at}{since}"
        return f"waits in {_call(first.pending)}{since}"
    words = {"runs": "is not in a collective", "ended": first.how or "has ended", "waits": "waits"}
    return words.get(first.state, "has never joined the group")


def _awaited(hang: Standstill, together: list[Stand]) -> str:
    """The ranks of the same group that are not in the same call."""
    pending = together[0].pending
    if pending is None:
        return ""
    size = len(hang.stands)
    here = {
        one.rank
        for one in hang.stands
        if one.pending is not None
        and (one.pending.op, one.pending.group, one.pending.number) == (pending.op, pending.group, pending.number)
    }
    others = set(members(pending.group, size)) - here
    return ranks_text(others) if others else ""


def _call(call: Passed | None) -> str:
    if call is None:
        return ""
    on = "" if call.group == "world" else f" on {group_name(call.group)}"
    return f"{call.name}, call {call.number:,}{on}"


def number_of_parting(hang: Standstill | None) -> str:
    """Which call of which group that is."""
    if hang is None or hang.parted is None:
        return ""
    return f"call {hang.parted.number:,} on {group_name(hang.parted.group)}"
