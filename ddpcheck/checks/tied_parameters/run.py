"""Is a parameter that several modules share still one, or a copy that stays equal? Judge of tied-parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.tied_parameters import pipeline_ends, summed
from ddpcheck.judging import first_forwards, parameter_history
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding


class Side(NamedTuple):
    """One of two names that were given the same parameter."""

    rank: Rank
    model: ev.Model
    name: str

    def digests(self) -> dict[int, tuple[ev.Step, bytes]]:
        """After each step that was looked at in full, by its number."""
        found = parameter_history.after_steps(self.rank, self.model.model, self.name)
        return {step.number: (step, digest) for step, digest in found}

    @property
    def at_first(self) -> ev.Held | None:
        """What it held at the model's first forward."""
        return first_forwards.held(self.model).get(self.name)


def judge(world: World) -> Judged:
    """Look at each pair of names that a model had for one parameter."""
    checked = 0
    findings: dict[str, Finding] = {}
    for rank, model in world.of(ev.Model):
        for tie in model.ties:
            if not (tie.first and tie.second):
                continue
            if tie.same:
                checked += 1
                continue
            times, finding = _compare(tie, Side(rank, model, tie.first), Side(rank, model, tie.second))
            checked += bool(times)
            if finding is not None:
                findings.setdefault(tie.words, finding)
    for tie, first, second in _across_ranks(world):
        times, finding = _compare(tie, first, second)
        checked += bool(times)
        if finding is not None:
            findings.setdefault(tie.words, finding)
    for part in (pipeline_ends, summed):
        times, more = part.judge(world)
        checked += times
        # What is known to have been tied is told by that.
        for finding in more if not findings else ():
            findings.setdefault(finding.expected, finding)
    ties = any(model.ties for _, model in world.of(ev.Model))
    return Judged(
        checked=checked,
        findings=tuple(findings.values()),
        skipped_because="ddpcheck could not compare what the two names of a parameter hold"
        if ties
        else "ddpcheck saw no parameter with two names",
    )


def _across_ranks(world: World) -> Iterator[tuple[ev.Tie, Side, Side]]:
    """Ties of which ranks have one name each, as the first and the last stage of a pipeline."""
    firsts: dict[str, list[tuple[ev.Tie, Side]]] = {}
    seconds: dict[str, list[Side]] = {}
    for rank, model in world.of(ev.Model):
        for tie in model.ties:
            if tie.first and not tie.second:
                firsts.setdefault(tie.words, []).append((tie, Side(rank, model, tie.first)))
            if tie.second and not tie.first:
                seconds.setdefault(tie.words, []).append(Side(rank, model, tie.second))
    for words, ones in firsts.items():
        for (tie, first), second in zip(ones, seconds.get(words, ()), strict=False):
            yield tie, first, second


def _compare(tie: ev.Tie, first: Side, second: Side) -> tuple[int, Finding | None]:
    """How often two copies were compared, and the first time that they were not equal."""
    one, other = first.at_first, second.at_first
    if one is None or other is None:
        return 0, None
    if not _are_comparable(one, other):
        flat = all(held.layout is not None and held.layout.ground == "FSDP" for held in (one, other))
        # Parts of flat parameters cannot be compared; that there are two is seen.
        return 0, _finding(tie, first, second, None, first.rank.where(first.model.site)) if flat else None
    mine, theirs = first.digests(), second.digests()
    common = sorted(mine.keys() & theirs.keys())
    for times, number in enumerate(common):
        if mine[number][1] != theirs[number][1]:
            step = mine[number][0]
            return times + 1, _finding(tie, first, second, step.number, first.rank.where(step.site))
    return len(common), None


def _are_comparable(one: ev.Held, other: ev.Held) -> bool:
    """Whether both are the same part of a tensor of the same shape."""
    if one.kind != other.kind:
        return False
    if one.layout is None or other.layout is None:
        return one.layout is other.layout
    if "FSDP" in (one.layout.ground, other.layout.ground):
        return False
    return (one.layout.placements, one.layout.local) == (other.layout.placements, other.layout.local)


def _finding(tie: ev.Tie, first: Side, second: Side, step: int | None, where: CallSite | None) -> Finding:
    apart = first.rank is not second.rank
    on = f" (rank {first.rank.rank}) and {second.name} (rank {second.rank.rank})" if apart else f" and {second.name}"
    differ = f"that differ after step {step}" if step is not None else "in flat parameters, where they are not compared"
    return Finding(
        rule="tied-copies-differ" if step is not None else "tie-lost-in-sharding",
        severity="error" if step is not None else "warning",
        ranks=tuple(sorted({first.rank.rank, second.rank.rank})),
        subject=second.name,
        step=step,
        expected=f"{tie.words}, which were one parameter when the model was built, to be equal after every step",
        found=f"{first.name}{on} to be two tensors {differ}",
        cause="each of them gets the gradient of its own use alone"
        if apart
        else "the tie was lost when the model was materialised, moved or sharded, and each has its own gradient now",
        advice="Add up the gradients of both copies over their ranks before each step."
        if apart
        else "Tie them once more when the model is on its device, before it is sharded or wrapped: assign the "
        "parameter of one module to the other.",
        where=where,
        links=(f"model {first.model.model}",),
    )
