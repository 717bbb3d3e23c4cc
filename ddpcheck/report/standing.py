"""A standstill for a person: each rank's line, the call behind it and the call it waits in, and where they part."""

from __future__ import annotations

from collections import defaultdict

from rich import box
from rich.table import Table
from rich.text import Text

from ddpcheck.checks.standstill import Parting, Passed, Stand, Standstill
from ddpcheck.model import CallSite
from ddpcheck.report.console import plain
from ddpcheck.wording import ranks_text

_DDP = {
    "ddp-construct": "DDP's constructor",
    "ddp-buffers": "DDP's broadcast of buffers",
    "ddp-gradients": "DDP's reduction of gradients",
}


def stands(hang: Standstill, width: int) -> Table:
    """One row for the ranks that stand alike."""
    alike: dict[tuple[str, ...], list[Stand]] = defaultdict(list)
    for stand in hang.stands:
        alike[_line(stand), _name(stand.last), _name(stand.pending)].append(stand)
    table = _table()
    table.add_column("rank", no_wrap=True)
    for title in ("stands at", "last call", "waits in"):
        table.add_column(title, overflow="fold", ratio=1 if width > 100 else None)
    for (line, last, pending), ranks in alike.items():
        waited = max((s.waited for s in ranks if s.waited is not None), default=None)
        since = f"\nfor {waited:.0f} s" if pending and waited is not None and waited >= 1 else ""
        table.add_row(
            Text(_numbers(ranks)), Text(plain(line)), Text(plain(last)), Text(plain(pending + since), style="bold")
        )
    return table


def parting(found: Parting) -> Table:
    """What each rank has called where the others called something else."""
    calls: dict[tuple[str, CallSite | None, str], list[int]] = defaultdict(list)
    for rank, call in found.calls.items():
        key = (_call(call), call.where, call.code) if call is not None else ("no such call", None, "")
        calls[key].append(rank)
    table = _table()
    table.add_column("rank", no_wrap=True)
    table.add_column(f"call {found.number:,} of group {found.group}", overflow="fold")
    table.add_column("from", overflow="fold")
    for (name, where, code), ranks in calls.items():
        place = f"{where}\n{code}" if where is not None else ""
        table.add_row(Text(ranks_text(ranks).split(" ", 1)[1]), Text(plain(name)), Text(plain(place)))
    return table


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")


def _numbers(ranks: list[Stand]) -> str:
    return ranks_text(s.rank for s in ranks).split(" ", 1)[1]


def _line(stand: Stand) -> str:
    if stand.state == "never-joined":
        return "has never joined the group"
    where = stand.where
    place = f"{where.file}:{where.line}\n{stand.code}" if where is not None else ""
    if stand.state == "ended":
        return f"{stand.how}\n{place}" if place else stand.how
    return place or stand.doing or "(no line of the program's)"


def _name(call: Passed | None) -> str:
    return f"{_call(call)}\n({call.group}, call {call.number:,})" if call is not None else ""


def _call(call: Passed) -> str:
    return f"{_DDP.get(call.op, call.op)} {call.detail}".rstrip()
