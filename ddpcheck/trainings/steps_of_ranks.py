"""The steps of the ranks of one training, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge_steps(
    trained: Trained, check: str, of: Callable[[Any], Sequence[bytes | None]], expected: str, advice: str, *, rule: str
) -> Judged:
    """Whether all ranks make the same steps, with the same ``of`` each; ``rule``: of what is not the same."""
    rounds = list(zip(*(trace.steps for trace in trained.traces), strict=False))
    numbers = Counter(len(trace.steps) for trace in trained.traces)
    findings: list[Finding] = []
    if len(numbers) > 1:
        counts = ", ".join(f"{len(trace.steps)} on rank {rank}" for rank, trace in enumerate(trained.traces))
        findings.append(
            differing(
                check,
                list(trained.ranks),
                "the optimizer",
                "all ranks to make the same steps",
                counts,
                advice,
                rule="unequal-step-counts",
            )
        )
    wrong = [(n, steps) for n, steps in enumerate(rounds) if others([_key(of(step)) for step in steps])]
    if wrong:
        first, steps = wrong[0]
        odd = others([_key(of(step)) for step in steps])
        names = trained.traces[0].names
        apart = [
            name
            for place, name in enumerate(names)
            if any(_at(of(steps[rank]), place) != _at(of(steps[0]), place) for rank in odd)
        ]
        findings.append(
            differing(
                check,
                odd,
                listing(apart),
                expected,
                f"{len(apart)} of {count(len(names), 'parameter')} to differ from rank 0's on {ranks_text(odd)} at "
                f"step {first} ({count(len(wrong), 'step')} of {len(rounds)} in all), with {trained.situation.about}",
                advice,
                step=first,
                number=len(wrong),
                rule=rule,
            )
        )
    return Judged(check=check, checked=len(rounds), findings=tuple(findings))


def _key(values: Iterable[bytes | None]) -> tuple[bytes | None, ...]:
    return tuple(values)


def _at(values: Sequence[bytes | None], place: int) -> bytes | None:
    return values[place] if place < len(values) else None


def others(values: Sequence[object]) -> list[int]:
    """The ranks whose value is not rank 0's."""
    return [rank for rank, value in enumerate(values) if value != values[0]]


def differing(
    check: str,
    ranks: list[int],
    subject: str,
    expected: str,
    found: str,
    advice: str,
    step: int | None = None,
    number: int = 1,
    *,
    rule: str,
) -> Finding:
    """A finding on ranks that do not hold what the others hold."""
    return Finding(
        check=check,
        rule=rule,
        ranks=tuple(ranks),
        subject=subject,
        expected=expected,
        found=found,
        advice=advice,
        step=step,
        count=number,
    )
