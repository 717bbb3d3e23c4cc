"""Are gradients clipped after a scaler has undone its factor, and not before?"""

from __future__ import annotations

import math
from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.moments import ALIKE, CLIPS, Measured, Step, differ
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding

FAR = 100.0
"""How many times larger than the bound a scale has to be: a program may multiply its bound by the scale."""


def judge(world: World, steps: list[tuple[int, int, Step]]) -> tuple[int, list[Finding]]:
    """How many clips were followed by a scaler's division, or might have been, and the findings."""
    checked = 0
    wrong: dict[int, list[Measured]] = {}
    clips: dict[int, int] = {}
    for optimizer, _, step in steps:
        for measured in step.values():
            for one in measured:
                if one.norm.how not in CLIPS or one.norm.largest is None:
                    continue
                checked += 1
                clips[optimizer] = clips.get(optimizer, 0) + 1
                if _is_clipped_while_scaled(one.norm):
                    wrong.setdefault(optimizer, []).append(one)
    always = {optimizer: its for optimizer, its in wrong.items() if len(its) == clips[optimizer]}
    times, by_hand = _by_hand(world)
    findings = [_finding(its) for its in always.values()]
    return checked + times, findings + [_of_hand(its) for optimizer, its in by_hand.items() if optimizer not in always]


def _is_clipped_while_scaled(norm: ev.Norm) -> bool:
    """Whether gradients are made smaller than a scaler makes them afterwards: a clip of another optimizer's is none."""
    scale, largest = norm.scale, norm.largest
    if scale is None or largest is None or norm.factor is None:
        return False
    return scale > FAR * largest and scale > 1 and norm.factor * scale < 1 - ALIKE


def _by_hand(world: World) -> tuple[int, dict[int, list[tuple[Rank, list[ev.Norm]]]]]:
    """Where the program clips without torch's function: gradients have the same norm before a scaler divides them.

    Whatever they were multiplied by, by another number at each step, it was
    chosen so.
    """
    checked = 0
    wrong: dict[int, list[tuple[Rank, list[ev.Norm]]]] = defaultdict(list)
    for rank in world:
        each: dict[int, list[ev.Norm]] = defaultdict(list)
        for norm in rank.of(ev.Norm):
            if norm.how == "unscale_" and norm.was is not None and norm.was < 1 - ALIKE and norm.scale:
                each[norm.optimizer].append(norm)
        for optimizer, norms in each.items():
            checked += len(norms)
            lengths = [_length(norm) for norm in norms]
            chosen = any(differ(norm.was or 0.0, norms[0].was or 0.0, 1e-2) for norm in norms)
            same = not any(differ(length, lengths[0]) for length in lengths)
            if len(norms) > 1 and chosen and same and all((n.scale or 0) > FAR * lengths[0] for n in norms):
                wrong[optimizer].append((rank, norms))
    return checked, wrong


def _length(norm: ev.Norm) -> float:
    return math.sqrt(math.fsum(one for one in ev.unpacked(norm.squares) if one != ev.NOTHING))


def _of_hand(wrong: list[tuple[Rank, list[ev.Norm]]]) -> Finding:
    rank, norms = wrong[0]
    first = norms[0]
    return Finding(
        rule="clip-before-unscale",
        ranks=tuple(one.rank for one, _ in wrong),
        subject="the gradients",
        step=first.number,
        expected="gradients to be clipped after the scaler has divided them by its scale",
        found=f"gradients that are still multiplied by {first.scale:g} and have the norm {_length(first):.4g} before "
        f"each of {len(norms)} such divisions, whatever they were multiplied by for that",
        cause="the program clips them by hand, and scaler.unscale_(optimizer) is called after that, or by the step",
        advice="Call scaler.unscale_(optimizer) between backward() and the clip.",
        where=rank.where(first.site),
        count=sum(len(its) for _, its in wrong),
        links=(f"optimizer {first.optimizer}",),
    )


def _finding(wrong: list[Measured]) -> Finding:
    first = wrong[0]
    norm = first.norm
    return Finding(
        rule="clip-before-unscale",
        ranks=tuple(sorted({one.rank.rank for one in wrong})),
        subject="the gradients",
        step=norm.number,
        expected="gradients to be clipped after the scaler has divided them by its scale",
        found=f"the norm of gradients that were still multiplied by {norm.scale:g}, which is clipped to "
        f"{norm.largest:g}: an update of no more than {(norm.largest or 0) / (norm.scale or 1):.3g} in norm is left",
        cause="scaler.unscale_(optimizer) was not called before the clip",
        advice="Call scaler.unscale_(optimizer) between backward() and the clip.",
        where=first.rank.where(norm.site),
        count=len(wrong),
        links=(f"optimizer {norm.optimizer}",),
    )
