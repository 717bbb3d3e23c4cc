"""Do all ranks hold the same state? Judges of initial-broadcast, gradient-sync and parameter-sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ddpcheck.evidence.model_state import ModelFacts, TensorFacts, WorstDifference
from ddpcheck.vocabulary.model import Finding, Question
from ddpcheck.vocabulary.wording import count, listing, ranks_text

EXAMINED = 32
"""Tensors whose elements are compared, where digests alone say that they differ."""


NOUNS = {"initial-broadcast": "tensor", "gradient-sync": "gradient", "parameter-sync": "parameter"}
EXPECTED = {
    "initial-broadcast": "all ranks to hold rank 0's parameters and buffers",
    "gradient-sync": "all ranks to hold the same gradients",
    "parameter-sync": "all ranks to hold the same parameters",
}


def judge(check: str, said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Compare the ranks' tensors by digest; ask for elements only of those that differ, a portion at a time.

    ``said`` holds a ModelFacts of every rank as plain data; ``rounds`` the
    answers to the questions so far: the reference is written, then compared.
    """
    facts = [msgspec.convert(one, ModelFacts) for one in said]
    finding = _nothing(check, facts) or _unlike(check, facts)
    if finding is not None:
        return (finding,)
    differing = _differing(facts)
    if not differing:
        return _held_by_sharing(check, facts)
    reference = 0 if check == "initial-broadcast" else _majority(facts, differing)
    tolerant = facts[0].atol > 0 or facts[0].rtol > 0
    portion = len(differing) if tolerant else EXAMINED
    examined = (len(rounds) // 2) * portion  # each portion takes two rounds: written, then compared
    if rounds and len(rounds) % 2 == 0:
        compared = [msgspec.convert(one, dict[str, WorstDifference]) for one in rounds[-1]]
        # Other bits may be the same number: -0.0, or another NaN.
        beyond = {rank: {n: d for n, d in found.items() if d.elements} for rank, found in enumerate(compared)}
        beyond = {rank: found for rank, found in beyond.items() if found}
        if beyond:
            return (_difference(check, facts, reference, beyond, max(0, len(differing) - examined)),)
        if examined >= len(differing):
            return ()
    names = list(differing)[examined : examined + portion]
    about = {"names": names, "reference": reference, "atol": facts[0].atol, "rtol": facts[0].rtol}
    return Question(ask="compare" if len(rounds) % 2 else "write", about=about)


def _nothing(check: str, facts: Sequence[ModelFacts]) -> Finding | None:
    """A check that saw nothing must not pass."""
    if any(t.present for f in facts for t in f.tensors.values()):
        return None
    gradients = check == "gradient-sync"
    return Finding(
        check=check,
        ranks=tuple(range(len(facts))),
        subject="the model",
        expected=EXPECTED[check],
        found=f"no {NOUNS[check]} on any rank: nothing was checked",
        advice=(
            "Call it after backward() and before zero_grad()." if gradients else "Pass a model that has parameters."
        ),
    )


def _unlike(check: str, facts: Sequence[ModelFacts]) -> Finding | None:
    """Tensors that cannot be compared: absent on some ranks, or of another type or shape."""
    names = dict.fromkeys(name for f in facts for name in f.tensors)
    for name in names:
        kinds: dict[str, list[int]] = {}
        for rank, f in enumerate(facts):
            kinds.setdefault(_kind(f.tensors.get(name)), []).append(rank)
        if len(kinds) > 1:
            shown = "; ".join(f"{ranks_text(ranks)}: {kind}" for kind, ranks in kinds.items())
            usual = max(kinds.values(), key=len)
            odd = tuple(r for r in range(len(facts)) if r not in usual)
            return Finding(
                check=check,
                ranks=odd,
                subject=name,
                expected=EXPECTED[check],
                found=f"{name} to be of different kinds: {shown}",
                advice=(
                    "Let every rank build the same model, and use the same parameters in every forward: a branch that "
                    "depends on the rank or its data leaves parameters without a gradient."
                ),
            )
    return None


def _kind(tensor: TensorFacts | None) -> str:
    if tensor is None:
        return "no such tensor"
    if not tensor.present:
        return "no gradient (None)"
    return f"{tensor.dtype}{list(tensor.shape)}"


def _differing(facts: Sequence[ModelFacts]) -> dict[str, None]:
    return {
        name: None
        for name, tensor in facts[0].tensors.items()
        if any(f.tensors[name].digest != tensor.digest for f in facts[1:])
    }


def _majority(facts: Sequence[ModelFacts], names: Mapping[str, None]) -> int:
    """The lowest rank of those whose state is the most common."""
    states = [tuple(f.tensors[name].digest for name in names) for f in facts]
    (most, _), *_ = Counter(states).most_common(1)
    return states.index(most)


def _held_by_sharing(check: str, facts: Sequence[ModelFacts]) -> tuple[Finding, ...]:
    shared = [name for name in facts[0].tensors if all(f.tensors[name].shared for f in facts)]
    if not shared or len(facts) == 1:
        return ()
    return (
        Finding(
            check=check,
            severity="warning",
            ranks=tuple(range(len(facts))),
            subject=shared[0],
            expected="each rank to have a model of its own",
            found=(
                f"{count(len(shared), 'tensor')} of the model ({listing(shared, 3)}) in shared memory on every rank: "
                "if that is one memory, the ranks overwrite each other, and are equal for this reason alone"
            ),
            advice="Build the model in each rank, or copy one that a parent process has handed down.",
        ),
    )


def _difference(
    check: str,
    facts: Sequence[ModelFacts],
    reference: int,
    beyond: Mapping[int, Mapping[str, WorstDifference]],
    unexamined: int,
) -> Finding:
    rank, name, worst = max(
        ((r, n, d) for r, found in beyond.items() for n, d in found.items()), key=lambda entry: entry[2].size
    )
    names = list(dict.fromkeys(n for found in beyond.values() for n in found))
    total = len(facts[0].tensors)
    differ = len(names) + unexamined
    place = f" at {list(worst.place)}" if worst.place else ""
    allowed = ""
    if facts[0].atol or facts[0].rtol:
        allowed = f" (allowed: atol {facts[0].atol:g}, rtol {facts[0].rtol:g})"
    others = [n for n in names if n != name]
    also = f"; also {listing(others, 4)}" if others else ""
    return Finding(
        check=check,
        ranks=tuple(beyond),
        subject=name,
        expected=EXPECTED[check] + allowed,
        found=(
            f"{differ} of {count(total, NOUNS[check])} to differ from rank "
            f"{reference}'s on {ranks_text(beyond)}; most of all {name} on rank {rank}: "
            f"{worst.elements:,} of {count(worst.of, 'element')}, by up to {worst.size:.3g}{place} "
            f"(rank {rank} has {worst.mine}, rank {reference} has {worst.reference}){_factor(check, worst)}{also}"
        ),
        cause=_cause(facts),
        advice=ADVICE[check],
        count=differ,
    )


def _factor(check: str, worst: WorstDifference) -> str:
    times = round(worst.scale or 0.0)
    exact = abs((worst.scale or 0.0) - times) < 1e-3
    return f": {times} times the other's" if check == "gradient-sync" and times > 1 and exact else ""


def _cause(facts: Sequence[ModelFacts]) -> str:
    """What the wrapper alone shows; what the ranks have kept on record may explain more."""
    wrapped = [f.wrapped for f in facts]
    if not any(wrapped):
        return "the model is not in DistributedDataParallel, so nothing made the ranks agree"
    if not all(wrapped):
        return f"only {ranks_text(r for r, w in enumerate(wrapped) if w)} has the model in DistributedDataParallel"
    return ""


ADVICE = {
    "initial-broadcast": "Load and initialise before the model is wrapped, or do the same on every rank.",
    "gradient-sync": "Compute the loss from the output of the wrapper itself, leave no_sync() before the last forward "
    "of a step, and treat gradients alike on every rank between backward() and step().",
    "parameter-sync": "Find what changes parameters on one rank alone: to reduce gradients never repairs parameters.",
}
