"""Assertions of equal state: R1 over what the ranks of a test hold at one line.

Of a plain model all ranks hold all; of one whose tensors are declared to lie on a mesh, those that hold the same
elements are compared with each other, and with nobody else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ddpcheck.evidence.model_state import ModelFacts, TensorFacts, WorstDifference
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.relations.equal import equality
from ddpcheck.vocabulary.model import Finding, Question
from ddpcheck.vocabulary.wording import count, listing, ranks_text

EXAMINED = 32
"""Tensors whose elements are compared, where digests alone say that they differ."""


class StateRow(NamedTuple):
    """How a check calls what it compares at a line."""

    rule: str
    """Of tensors that are not the same."""
    noun: str
    tensors: str
    """What the holders hold, in a message."""
    advice: str
    advice_of_copies: str
    """Of tensors that are declared to be copies."""
    nothing: str = "Pass a model that has parameters."
    """What to do where there is nothing to compare."""
    first_rank: bool = False
    """The lowest holder has what the others must hold, and not most of them."""

    def expected(self, of_copies: bool) -> str:
        held = self.tensors.replace("rank 0's", "the same") if of_copies else self.tensors
        return f"{'the ranks that hold copies' if of_copies else 'all ranks'} to hold {held}"


class Copy(NamedTuple):
    """A tensor, or a part of one, that several ranks hold."""

    name: str
    holders: tuple[int, ...]


def judge(row: StateRow, said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Compare the ranks' tensors by digest; ask for elements only of those that differ, a portion at a time.

    ``said`` holds a ModelFacts of every rank as plain data; ``rounds`` the
    answers to the questions so far: the reference is written, then compared.
    """
    facts = [msgspec.convert(one, ModelFacts) for one in said]
    copies = _copies(facts)
    finding = _nothing(row, facts, copies) or _unlike(row, facts, copies)
    if finding is not None:
        return (finding,)
    differing = _differing(facts, copies)
    if not differing:
        return ()
    references = _references(row, facts, differing)
    tolerant = facts[0].atol > 0 or facts[0].rtol > 0
    portion = len(differing) if tolerant else EXAMINED
    examined = (len(rounds) // 2) * portion  # each portion takes two rounds: written, then compared
    if rounds and len(rounds) % 2 == 0:
        compared = [msgspec.convert(one, dict[str, WorstDifference]) for one in rounds[-1]]
        # Other bits may be the same number: -0.0, or another NaN.
        beyond = {rank: {n: d for n, d in found.items() if d.elements} for rank, found in enumerate(compared)}
        beyond = {rank: found for rank, found in beyond.items() if found}
        if beyond:
            return (_difference(row, facts, copies, references, beyond, differing[examined:]),)
        if examined >= len(differing):
            return ()
    asked = [[one.name, references[one.holders], list(one.holders)] for one in differing[examined:][:portion]]
    about = {"copies": asked, "atol": facts[0].atol, "rtol": facts[0].rtol}
    return Question(ask="compare" if len(rounds) % 2 else "write", about=about)


def _copies(facts: Sequence[ModelFacts]) -> list[Copy]:
    """What several ranks hold, by name; in a world of one rank, all."""
    every = tuple(range(len(facts)))
    found: dict[Copy, None] = {}
    for name in dict.fromkeys(name for f in facts for name in f.tensors):
        for tensor in (f.tensors[name] for f in facts if name in f.tensors):
            holders = every if tensor.holders is None else tensor.holders
            if len(holders) > 1 or holders == every:
                found[Copy(name, holders)] = None
    return list(found)


def _differing(facts: Sequence[ModelFacts], copies: Sequence[Copy]) -> list[Copy]:
    """Those of which the holders hold different bits."""
    by_holders: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for one in copies:
        by_holders[one.holders].append(one.name)
    found = set()
    for holders, names in by_holders.items():
        values = tuple(tuple(facts[rank].tensors[name].digest for name in names) for rank in holders)
        look = Look(0, values, lambda _: None)
        deviation = equality(Holding("line", holders, names, range(len(names)), Ground("line"), [look])).deviation
        found |= {Copy(name, holders) for name in deviation.names} if deviation is not None else set()
    return [one for one in copies if one in found]


def _nothing(row: StateRow, facts: Sequence[ModelFacts], copies: Sequence[Copy]) -> Finding | None:
    """A check that saw nothing must not pass."""
    held = (facts[rank].tensors.get(one.name) for one in copies for rank in one.holders)
    if any(tensor is not None and tensor.present for tensor in held):
        return None
    if any(t.present for f in facts for t in f.tensors.values()):
        found = f"no {row.noun} that is declared to be the same on two ranks or more: nothing was checked"
        advice = (
            "The model is sharded over all ranks, with nothing that they hold alike, as with fully_shard over a mesh "
            "of one dimension: there is nothing for this assertion to compare."
        )
    else:
        found = f"no {row.noun} on any rank: nothing was checked"
        advice = row.nothing
    return Finding(
        rule="nothing-to-compare",
        ranks=tuple(range(len(facts))),
        subject="the model",
        expected=row.expected(bool(copies) or _is_declared(facts)),
        found=found,
        advice=advice,
    )


def _is_declared(facts: Sequence[ModelFacts]) -> bool:
    """Whether it is said of this model's tensors who holds what."""
    return any(t.holders is not None for f in facts for t in f.tensors.values())


def _unlike(row: StateRow, facts: Sequence[ModelFacts], copies: Sequence[Copy]) -> Finding | None:
    """Tensors that cannot be compared: absent on some ranks, or of another type or shape."""
    for one in copies:
        kinds = by_key((_kind(facts[rank].tensors.get(one.name)), rank) for rank in one.holders)
        if len(kinds) > 1:
            shown = "; ".join(f"{ranks_text(ranks)}: {kind}" for kind, ranks in kinds.items())
            usual = max(kinds.values(), key=len)
            odd = tuple(r for r in one.holders if r not in usual)
            return Finding(
                rule=row.rule,
                ranks=odd,
                subject=one.name,
                expected=_expected(row, [one], facts),
                found=f"{one.name} to be of different kinds: {shown}",
                advice=(
                    "Let every rank build the same model, and use the same parameters in every forward: a branch that "
                    "depends on the rank or its data leaves parameters without a gradient."
                ),
            )
    return None


def _expected(row: StateRow, copies: Sequence[Copy], facts: Sequence[ModelFacts]) -> str:
    everywhere = all(len(one.holders) == len(facts) for one in copies)
    return row.expected(not everywhere)


def _kind(tensor: TensorFacts | None) -> str:
    if tensor is None:
        return "no such tensor"
    if not tensor.present:
        return "no gradient (None)"
    placed = f" ({', '.join(tensor.placements)})" if tensor.placements else ""
    return f"{tensor.dtype}{list(tensor.shape)}{placed}"


def _references(row: StateRow, facts: Sequence[ModelFacts], differing: Sequence[Copy]) -> dict[tuple[int, ...], int]:
    """With which of its holders a copy is compared: the lowest rank of those whose state is the most common.

    What DDP broadcasts is that of the first.
    """
    names = by_key((one.holders, one.name) for one in differing)
    found = {}
    for holders, its in names.items():
        states = [tuple(facts[rank].tensors[name].digest for name in its) for rank in holders]
        (most, _), *_ = Counter(states).most_common(1)
        found[holders] = holders[0 if row.first_rank else states.index(most)]
    return found


def _difference(
    row: StateRow,
    facts: Sequence[ModelFacts],
    copies: Sequence[Copy],
    references: Mapping[tuple[int, ...], int],
    beyond: Mapping[int, Mapping[str, WorstDifference]],
    unexamined: Sequence[Copy],
) -> Finding:
    rank, name, worst = max(
        ((r, n, d) for r, found in beyond.items() for n, d in found.items()), key=lambda entry: entry[2].size
    )
    names = list(dict.fromkeys(n for found in beyond.values() for n in found))
    broken = [one for one in copies if any(r in one.holders and one.name in found for r, found in beyond.items())]
    compared_with = [references[one.holders] for one in broken]
    reference = next(references[one.holders] for one in broken if one.name == name and rank in one.holders)
    differ = len(names) + len({one.name for one in unexamined} - {*names})
    place = f" at {list(worst.place)}" if worst.place else ""
    allowed = ""
    if facts[0].atol or facts[0].rtol:
        allowed = f" (allowed: atol {facts[0].atol:g}, rtol {facts[0].rtol:g})"
    others = [n for n in names if n != name]
    also = f"; also {listing(others, 4)}" if others else ""
    declared = _is_declared(facts)
    return Finding(
        rule=row.rule,
        ranks=tuple(beyond),
        subject=name,
        expected=_expected(row, broken, facts) + allowed,
        found=(
            f"{differ} of {count(len({one.name for one in copies}), row.noun)}"
            f"{' that several ranks hold' if declared else ''} to differ from {_whose(compared_with)} on "
            f"{ranks_text(beyond)}; most of all {name} on rank {rank}: "
            f"{worst.elements:,} of {count(worst.of, 'element')}, by up to {worst.size:.3g}{place} "
            f"(rank {rank} has {worst.mine}, rank {reference} has {worst.reference}){_factor(worst)}{also}"
        ),
        cause="" if declared else _cause(facts),
        advice=row.advice_of_copies if declared and not any(f.wrapped for f in facts) else row.advice,
        count=differ,
    )


def _whose(references: Sequence[int]) -> str:
    """``rank 0's``, or ``those of ranks 0 and 1``, where groups of ranks hold each their part."""
    return f"rank {references[0]}'s" if len(set(references)) == 1 else f"those of {ranks_text(references)}"


def _factor(worst: WorstDifference) -> str:
    times = round(worst.scale or 0.0)
    exact = abs((worst.scale or 0.0) - times) < 1e-3
    return f": {times} times the other's" if times > 1 and exact else ""


def _cause(facts: Sequence[ModelFacts]) -> str:
    """What the wrapper alone shows; what the ranks have kept on record may explain more."""
    wrapped = [f.wrapped for f in facts]
    if not any(wrapped):
        return "the model is not in DistributedDataParallel, so nothing made the ranks agree"
    if not all(wrapped):
        return f"only {ranks_text(r for r, w in enumerate(wrapped) if w)} has the model in DistributedDataParallel"
    return ""
