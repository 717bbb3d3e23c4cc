"""Do the ranks that hold parts of one model scale their gradients by the same factor?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm import moments
from ddpcheck.checks.clip_norm.moments import Measured, Step
from ddpcheck.judging.brought_together import is_trained_apart
from ddpcheck.judging.step_alignment import Windows
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

APART = 1e-2
"""By how much factors differ that are not one and the same, rounded in 16 bits."""


class Compared(NamedTuple):
    """Ranks that hold parts of one model, at one step."""

    number: int
    each: list[Measured]
    """Rank by rank, what its factor is counted from."""

    @property
    def factors(self) -> list[float]:
        return [one.norm.factor or 0.0 for one in self.each]

    @property
    def by_one_norm(self) -> bool:
        """Whether all ranks were given the same norm by torch's function, or none of them was."""
        came = [one.norm.came for one in self.each]
        known = [one for one in came if one is not None]
        return not known or (len(known) == len(came) and not moments.differ(min(known), max(known)))

    @property
    def clipped(self) -> bool:
        """Whether any rank made its gradients smaller."""
        return min(self.factors) < 1 - moments.ALIKE

    @property
    def differ(self) -> bool:
        rounded = any(not p.kind.startswith(("float32", "float64")) for one in self.each for p in one.parameters)
        return self.clipped and max(self.factors) > min(self.factors) * (1 + (APART if rounded else moments.ALIKE))


def judge(
    world: World, steps: list[tuple[int, int, Step]], clipping: frozenset[tuple[int, int]]
) -> tuple[Windows, list[Finding]]:
    """The windows in which factors of a clip were compared, and the findings on any factors."""
    compared: dict[tuple[int, tuple[int, ...]], list[Compared]] = {}
    for optimizer, number, step in steps:
        for each in _together(world, step):
            ranks = tuple(one.rank.rank for one in each)
            compared.setdefault((optimizer, ranks), []).append(Compared(number, each))
    checked, findings = Windows(), list[Finding]()
    for (optimizer, ranks), its in compared.items():
        is_clip = all((optimizer, rank) in clipping for rank in ranks)
        checked |= {(optimizer, one.number) for one in its if is_clip and one.by_one_norm}
        apart = [one for one in its if one.differ]
        if any(not is_clip and _is_no_clip(one) and _are_stacks(one) for one in apart):
            continue
        # Once in a while, a rank may have treated its gradients otherwise for a reason of its own.
        if apart and 2 * len(apart) >= sum(one.clipped for one in its):
            findings.append(_finding(optimizer, apart, is_clip))
            checked |= {(optimizer, one.number) for one in apart}
    return checked, findings


def _together(world: World, step: Step) -> Iterator[list[Measured]]:
    """The ranks that share one model, as is declared; or that compute it together, with equal gradients in it."""
    factors = {rank: one for rank, measured in step.items() if (one := moments.scaled(measured)) is not None}
    met: set[frozenset[int]] = set()
    for rank, one in factors.items():
        group = frozenset(other for other in one.among if other in factors)
        if len(group) > 1 and group not in met and all(rank in factors[other].among for other in group):
            met.add(group)
            yield [factors[other] for other in sorted(group)]
    if met or is_trained_apart(world):  # a rank that steps a copy of its own clips by its own norm
        return
    for one in factors.values():
        group = frozenset(other for other in moments.joint(world, one.norm) if other in factors)
        each = [factors[other] for other in sorted(group)]
        if len(group) > 1 and group not in met and _have_equals(each):
            met.add(group)
            yield each


def _have_equals(each: Sequence[Measured]) -> bool:
    """Whether some parameter had the same gradient on all of these ranks, and was no lone number."""
    lists = [one.squares for one in each]
    if len({len(one) for one in lists}) > 1:
        return False
    for place, squares in enumerate(zip(*lists, strict=True)):
        kinds = {one.parameters[place].kind for one in each}
        if len(kinds) == 1 and squares[0] > 0 and not any(moments.differ(a, squares[0], 1e-9) for a in squares):
            return True
    return False


# --- the words


def _finding(optimizer: int, apart: list[Compared], is_clip: bool) -> Finding:
    first = apart[0]
    one = max(first.each, key=lambda each: each.norm.how != "backward")
    norm = one.norm
    shown = ", ".join(f"{f:.4g} on rank {m.rank.rank}" for f, m in zip(first.factors, first.each, strict=True))
    own = ", ".join(f"{math.sqrt(m.total):.4g}" for m in first.each)
    whole = _whole(first.each)
    norms = f"; the norms of their own parts were {own}" + (f", and that of the whole {whole:.4g}" if whole else "")
    cause, advice = _NUMBERS if not is_clip and _is_no_clip(first) else _why(one, [m.rank.rank for m in first.each])
    return Finding(
        rule="unequal-scale-factors",
        ranks=tuple(m.rank.rank for m in first.each),
        subject=f"the gradients of optimizer {optimizer}" if optimizer else "the gradients",
        step=first.number,
        expected="the ranks that hold parts of one model to scale their gradients by one factor, from the norm of the "
        "whole gradient",
        found=f"factors of {shown}{norms}",
        cause=cause,
        advice=advice,
        where=one.rank.where(norm.site if norm.how != "backward" else norm.step_site),
        count=len(apart),
        links=(f"optimizer {optimizer}",),
    )


def _whole(each: Sequence[Measured]) -> float:
    """The norm of the whole, where all that these ranks have are parts of it; else 0."""
    layouts = [p.layout for one in each for p in one.parameters]
    if all(one is not None and one.sharded and len(one.holders) == 1 for one in layouts):
        return math.sqrt(math.fsum(one.total for one in each))
    return 0.0


_NUMBERS = (
    "each rank multiplies its gradients by a number of its own, such as one over the tokens or samples that it has",
    "All-reduce the number first, so that every part of one gradient is multiplied by the same.",
)


def _is_no_clip(compared: Compared) -> bool:
    """Whether the ranks do not come to one bound: each would, by its own norm, where it clips by that."""
    by_torch = any(one.norm.how in moments.CLIPS for one in compared.each)
    pairs = zip(compared.factors, compared.each, strict=True)
    bounds = [factor * math.sqrt(one.total) for factor, one in pairs if factor < 1 - moments.ALIKE]
    return not by_torch and len(bounds) > 1 and moments.differ(min(bounds), max(bounds), APART)


def _are_stacks(compared: Compared) -> bool:
    """Whether each rank has whole matrices of its own, such as experts, each divided by its own tokens."""
    layouts = [p.layout for one in compared.each for p in one.parameters]
    return all(
        one is not None and len(one.shape) > 2 and {way for way in one.placements if way != "R"} == {"S0"}
        for one in layouts
    )


def _why(one: Measured, ranks: list[int]) -> tuple[str, str]:
    by, how = one.sharded_by, one.norm.how
    if how == "clip_grad_norm_" and by == "FSDP":
        return (
            "torch.nn.utils.clip_grad_norm_ takes the norm of the rank's own shard: it knows nothing of FSDP's",
            "Call clip_grad_norm_() of the outermost FSDP module instead, on all ranks.",
        )
    if by:
        whole = "the outermost FSDP module's clip_grad_norm_()" if by == "FSDP" else (
            "torch.nn.utils.clip_grad_norm_ with the DTensor parameters themselves"
        )  # fmt: skip
        return (
            "each rank clips by the norm of its own shards, which nothing sums up over the ranks",
            f"Use {whole}, or all-reduce the sum of the squares over the ranks that hold other shards before the root "
            "is taken.",
        )
    if how == "all_reduce" and one.norm.group:
        over = happens_over(one.norm.group)
        return (
            f"the squares are summed up over {over} alone, and other ranks hold other parts of the model",
            f"All-reduce the squares of what is split over all of {ranks_text(ranks)}, and add those of what every "
            "rank has once.",
        )
    if one.rank.of(ev.Parallelised) and any(p.how == "PipelineStage" for p in one.rank.of(ev.Parallelised)):
        return (
            "each stage of the pipeline clips by the norm of its own layers",
            "All-reduce the sum of the squares over the stages before the root is taken, and clip by that "
            "(torch.nn.utils.clip_grads_with_norm_).",
        )
    return (
        "each rank clips by a norm of its own, though they compute one model together",
        "All-reduce the squares of what is split over these ranks, and add those of what every rank has once.",
    )


def happens_over(group: str) -> str:
    """The ranks of a group, by its name."""
    names = group.partition("#")[0].split(",")
    return ranks_text(int(name) for name in names) if all(name.isdigit() for name in names) else f"the group {group}"
