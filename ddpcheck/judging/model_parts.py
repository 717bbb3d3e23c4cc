"""The module of the model that a finding's parameter or buffer belongs to, and the line that has set it there."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.registered_buffers import registering_line
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding, ModelPart


def with_parts(judged: Judged, world: World) -> Judged:
    """The same findings; those about a parameter or buffer say which part of the model it belongs to."""
    if not judged.findings:
        return judged
    return replace(judged, findings=tuple(replace(one, module=part_of(world, one)) for one in judged.findings))


def part_of(world: World, finding: Finding) -> ModelPart | None:
    """That of a finding's subject; None where it is no tensor of a model, or where the ranks do not agree on it."""
    found = list(_of_optimizers(world, finding)) or list(_of_wrappers(world, finding))
    return found[0] if found and all(one == found[0] for one in found) else None


def _concerned(world: World, finding: Finding) -> list[Rank]:
    return [rank for rank in world if not finding.ranks or rank.rank in finding.ranks] or list(world)


def _numbers(finding: Finding, what: str) -> set[int] | None:
    """The wrappers or optimizers that a finding is linked with; None where it is with none: it may be about any."""
    numbers = {link.rpartition(" ")[2] for link in finding.links if link.rpartition(" ")[0] == what}
    return {int(number) for number in numbers if number.isdecimal()} or None


# --- what no wrapper knows, or none has known when it was built


def _of_optimizers(world: World, finding: Finding) -> Iterator[ModelPart]:
    optimizers, wrappers = _numbers(finding, "optimizer"), _numbers(finding, "wrapper")
    for rank in _concerned(world, finding):
        for one in rank.of(ev.Optimizer):
            if optimizers is not None and one.optimizer not in optimizers:
                continue
            for parameter in one.parameters:
                if parameter.name != finding.subject or (where := rank.where(parameter.site)) is None:
                    continue
                if parameter.wrapper is None or wrappers is None or parameter.wrapper in wrappers:
                    path, _, _ = parameter.name.rpartition(".")
                    # Without a wrapper its name is that of the module's class, and not of its place in the model.
                    alone = parameter.wrapper is None
                    yield ModelPart(path="" if alone else path, kind=path if alone else "", set_by=where)


# --- what a wrapper has found in its module


def _of_wrappers(world: World, finding: Finding) -> Iterator[ModelPart]:
    numbers = _numbers(finding, "wrapper")
    concerned = set(_concerned(world, finding))
    for replicas in step_alignment.wrappers(world):
        if (numbers is None or replicas.number in numbers) and concerned.intersection(replicas.ranks):
            for rank, wrapped in zip(replicas.ranks, replicas.wrapped, strict=True):
                modules = next((one for one in rank.of(ev.Modules) if one.wrapper == wrapped.wrapper), None)
                if modules is not None and (part := _within(rank, wrapped, modules, finding.subject)) is not None:
                    yield part


def _within(rank: Rank, wrapped: ev.Wrapped, modules: ev.Modules, name: str) -> ModelPart | None:
    path, _, own = name.rpartition(".")
    is_parameter = name in wrapped.parameters.names
    if path not in modules.parts or not (is_parameter or name in wrapped.buffers.names):
        return None
    kind = modules.classes[modules.parts[path]]
    around = kind if kind.users else _users_class(modules, path)
    constructor = rank.where(around.site) if around is not None else None
    if is_parameter:
        line = rank.where(modules.lines[wrapped.parameters.names.index(name)])
    elif kind.users:
        line = registering_line(rank.process, kind.site, own)
    else:  # a library's module registers buffers and parameters in one go
        line = _only(rank, wrapped, modules, path)
    return ModelPart(
        path=path,
        kind=kind.name,
        within="" if kind.users or around is None else around.name,
        set_by=line,
        defined=constructor if line is None else None,
    )


def _users_class(modules: ev.Modules, path: str) -> ev.PartClass | None:
    """The class of the nearest module around this one that is the user's own."""
    while path:
        path = path.rpartition(".")[0]
        if path in modules.parts and (kind := modules.classes[modules.parts[path]]).users:
            return kind
    return None


def _only(rank: Rank, wrapped: ev.Wrapped, modules: ev.Modules, path: str) -> CallSite | None:
    """The line that has set all parameters of a module's own, where it is one."""
    lines = {
        rank.where(line)
        for name, line in zip(wrapped.parameters.names, modules.lines, strict=False)
        if name.rpartition(".")[0] == path
    }
    return next(iter(lines)) if len(lines) == 1 else None
