"""Ranks that share one copy of a model and read the same data: one mask for what all of them hold."""

from __future__ import annotations

from ddpcheck.checks.rng_independence import forward_streams
from ddpcheck.judging import step_alignment
from ddpcheck.judging.copies import Copies, copies
from ddpcheck.judging.data_ranks import are_peers
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare what peers drew from, where the gradients of their declared copies show whether that matters.

    Where activations are parts, each may have a mask of its own: then these gradients agree all the same.
    """
    checked, findings = 0, []
    for held in copies(world):
        if not held.along or not are_peers(world, {rank.rank for rank in held.optimizer.ranks}):
            continue
        steps = [step for _, step in held.optimizer.compared() if all(one.gradients for one in step)]
        common, apart = forward_streams.among(held.optimizer)
        if not steps or not common:
            continue
        checked += len(common)
        differing = [
            s for s in steps if set(step_alignment.differing([one.gradients for one in s])) & {*held.gradients}
        ]
        if len(apart) > 1 and differing:
            findings.append(_finding(held, len(common), apart, len(differing), len(steps)))
    return checked, findings


def _finding(held: Copies, common: int, apart: list[list[forward_streams.Drew]], differing: int, steps: int) -> Finding:
    rank, stream = apart[0][0]
    use, seeded = rank.where(stream.site), [one.where(its.seeded) for one, its in apart[0]]
    lines = {str(site): site for site in seeded if site is not None}
    where = next(iter(lines.values())) if len(lines) == 1 else use
    return Finding(
        rule="different-draws-in-replica",
        # Another mask for parts of activations is right: what is wrong is that the gradients of copies differ.
        severity="warning",
        ranks=tuple(one.rank for one in held.optimizer.ranks),
        subject=f"the random states {held.along}",
        expected=f"ranks that share one copy of the model ({held.along}) to draw the same for what all of them hold",
        found=f"other states on {ranks_text([one.rank for one, _ in apart[0]])} at the start of {len(apart)} of the "
        f"{common} forwards compared that drew from them, and gradients of copies that differ in {differing} of "
        f"{count(steps, 'step')}",
        cause="dropout on activations that are the same on these ranks leaves out other elements on each",
        advice="Seed these ranks alike (by their place among the data ranks), and draw for parts of activations from a "
        "generator of its own.",
        where=where,
        count=len(apart),
        links=held.links,
        proof=((rank.rank, use),) if use is not None and use != where else (),
    )
