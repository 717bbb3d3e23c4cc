"""A standstill for a person: each rank's line, the call behind it and the call it waits in, and where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from rich.table import Table
from rich.text import Text

from ddpcheck.judging.call_divergence import group_name
from ddpcheck.judging.standstill import Parted, Passed, Stand, Standstill
from ddpcheck.report.console import plain, prose
from ddpcheck.vocabulary.model import CallSite
from ddpcheck.vocabulary.wording import ranks_text


def stands(hang: Standstill) -> Table:
    """Where each rank is; ranks that stand alike are told together."""
    alike: dict[Hashable, list[Stand]] = defaultdict(list)
    for one in hang.stands:
        alike[one.state, one.how, one.where, _name(one.last), _name(one.pending), one.on_device].append(one)
    grid = _grid()
    for together in alike.values():
        first = together[0]
        lines = [Text(plain(_state(first)))] if first.state != "waits" else []
        lines += _place(first.where, first.code)
        if first.pending is not None:
            waited = max((s.waited for s in together if s.waited is not None), default=0.0)
            since = f", for {waited:.0f} s" if waited >= 1 else ""
            at = f", at {first.pending.where}" if first.on_device and first.pending.where is not None else ""
            waits = "its device waits in " if first.on_device else "waits in  "
            lines.append(Text(prose(f"{waits} {_name(first.pending)}{at}{since}"), style="bold"))
        if first.last is not None:
            lines.append(Text(prose(f"last call  {_name(first.last)}"), style="dim"))
        text = Text("\n").join(lines)
        grid.add_row(ranks_text(s.rank for s in together), text)
    return grid


def parted(found: Parted) -> Table:
    """What each rank has called where others called something else."""
    alike: dict[tuple[str, CallSite | None, str], list[int]] = defaultdict(list)
    for rank, call in found.calls.items():
        alike[(call.name, call.where, call.code) if call is not None else ("no such call", None, "")].append(rank)
    grid = _grid()
    for (name, where, code), ranks in alike.items():
        text = Text("\n").join([Text(plain(name), style="bold"), *_place(where, code)])
        grid.add_row(ranks_text(ranks), text)
    return grid


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _state(stand: Stand) -> str:
    words = {"runs": "is not in a collective", "ended": stand.how or "has ended"}
    return words.get(stand.state, "has never joined the group")


def _place(where: CallSite | None, code: str) -> list[Text]:
    """A line of the program, in two lines: the comment behind it is left out."""
    if where is None:
        return []
    lines = [Text(plain(str(where)), style="cyan")]
    code = plain(code).split("  #")[0].rstrip()
    return [*lines, Text(f"    {code}")] if code else lines


def _name(call: Passed | None) -> str:
    return f"{call.name}, {numbered(call)}" if call is not None else ""


def numbered(call: Passed | Parted) -> str:
    """Which call of its group it is; the default group goes without saying."""
    on = "" if call.group == "world" else f" on {group_name(call.group)}"
    return f"call {call.number:,}{on}"


def parts_where_it_stands(hang: Standstill) -> bool:
    """Whether the calls that the ranks wait in are those at which they part: then one table tells both."""
    if hang.parted is None:
        return False
    pending = {stand.rank: stand.pending for stand in hang.stands}
    return all(call == pending.get(rank) for rank, call in hang.parted.calls.items())


def places(hang: Standstill) -> set[CallSite]:
    """The lines that are shown with the ranks."""
    return {stand.where for stand in hang.stands if stand.where is not None}
