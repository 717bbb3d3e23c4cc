"""Collectives of the program's own that bring together parts of one tensor which are declared to be different ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class _Mixed(NamedTuple):
    rank: Rank
    number: int
    of: str
    names: list[str]
    others: list[int]
    where: CallSite | None


def judge(world: World) -> Iterator[Finding]:
    """Elementwise, over ranks of one mesh that hold other elements: that is right for no tensor."""
    groups: dict[str, list[_Mixed]] = defaultdict(list)
    for rank in world:
        for one in _mixed(world, rank):
            groups[str(one.where)].append(one)
    for each in groups.values():
        yield _finding(each)


def _mixed(world: World, rank: Rank) -> Iterator[_Mixed]:
    meshes = {one.mesh: one for one in rank.of(ev.Mesh)}
    members: dict[str, set[int]] = {}
    for exchanged in rank.of(ev.Exchanged):
        described = [one for one in rank.of(ev.Optimizer) if one.optimizer == exchanged.optimizer]
        described = [one for one in described if one.n < exchanged.n]
        names: dict[tuple[str, str], list[str]] = defaultdict(list)
        last: dict[tuple[str, str], ev.Carried] = {}
        others: set[int] = set()
        for carried in exchanged.parts if described else ():
            parameter = described[-1].parameters[carried.place]
            layout = parameter.layout
            mesh = meshes.get(layout.mesh) if layout is not None and layout.mesh is not None else None
            if layout is None or mesh is None or not carried.alike or not _is_cut(layout):
                continue
            if carried.group not in members:
                members[carried.group] = {one.rank for one in step_alignment.members(world, carried.group)}
            apart = members[carried.group].intersection(mesh.ranks).difference(layout.holders)
            if apart:
                names[carried.of, carried.group].append(parameter.name)
                last[carried.of, carried.group] = carried
                others |= apart
        for (of, group), mine in names.items():
            yield _Mixed(rank, exchanged.number, of, mine, sorted(others), _line(rank, last[of, group], exchanged.n))


def _is_cut(layout: ev.Layout) -> bool:
    return bool(layout.holders) and layout.sharded and all(way[:1] in ("R", "S") for way in layout.placements)


def call_of(rank: Rank, carried: ev.Carried, before: int) -> ev.Call | None:
    """The call that a gradient went through; of one over values, which are counted otherwise, none."""
    calls = _over(rank, carried, before)
    wanted = calls[-1].number + carried.number if calls and carried.of == "gradient" else None
    return next((one for one in reversed(calls) if one.number == wanted), None)


def _over(rank: Rank, carried: ev.Carried, before: int) -> list[ev.Call]:
    return [one for one in rank.of(ev.Call) if one.group == carried.group and one.n < before and one.op != "wait"]


def _line(rank: Rank, carried: ev.Carried, before: int) -> CallSite | None:
    """That of the call, or of the last one over the group."""
    call = call_of(rank, carried, before)
    calls = [call] if call is not None else _over(rank, carried, before)
    return rank.where(calls[-1].site) if calls else None


def _finding(each: list[_Mixed]) -> Finding:
    first = each[0]
    what = "the gradient" if first.of == "gradient" else "the values"
    return Finding(
        rule="reduced-over-other-shards",
        ranks=tuple(sorted({one.rank.rank for one in each})),
        subject=first.names[0],
        step=first.number,
        expected=f"collectives over {what} of a shard to join ranks that hold the same elements",
        found=f"one that joins {ranks_text([first.rank.rank, *first.others])}, which hold other elements of "
        f"{count(len(first.names), 'parameter')}, as is declared: {listing(first.names)}",
        cause="the group is not that of the ranks with copies, but of those among which the tensor is dealt out",
        advice="Reduce over the dimension of the mesh along which there are copies: mesh[name].get_group().",
        where=first.where,
        count=len(each),
    )
