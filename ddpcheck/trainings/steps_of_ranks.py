"""The steps of the ranks of one training, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge_steps(
    trained: Trained, of: Callable[[Any], Sequence[bytes | None]], expected: str, advice: str, *, rule: str
) -> Judged:
    """Whether all ranks make the same steps, with the same ``of`` each; ``rule``: of what is not the same."""
    together = zip(*(trace.steps for trace in trained.traces), strict=False)
    rounds = [[tuple(of(step)) for step in steps] for steps in together]
    numbers = Counter(len(trace.steps) for trace in trained.traces)
    findings: list[Finding] = []
    if len(numbers) > 1:
        counts = ", ".join(f"{len(trace.steps)} on rank {rank}" for rank, trace in enumerate(trained.traces))
        findings.append(
            Finding(
                rule="unequal-step-counts",
                ranks=tuple(trained.ranks),
                subject="the optimizer",
                expected="all ranks to make the same steps",
                found=counts,
                advice=advice,
            )
        )
    wrong = [(n, values) for n, values in enumerate(rounds) if others(values)]
    if wrong:
        first, values = wrong[0]
        odd = others(values)
        names = trained.traces[0].names
        apart = [
            name
            for place, name in enumerate(names)
            if any(_at(values[rank], place) != _at(values[0], place) for rank in odd)
        ]
        findings.append(
            Finding(
                rule=rule,
                ranks=tuple(odd),
                subject=listing(apart),
                expected=expected,
                found=f"{len(apart)} of {count(len(names), 'parameter')} to differ from rank 0's on {ranks_text(odd)} "
                f"at step {first} ({count(len(wrong), 'step')} of {len(rounds)} in all), with "
                f"{trained.situation.about}",
                advice=advice,
                step=first,
                count=len(wrong),
            )
        )
    return Judged(checked=len(rounds), findings=tuple(findings))


def _at(values: Sequence[bytes | None], place: int) -> bytes | None:
    return values[place] if place < len(values) else None


def others(values: Sequence[object]) -> list[int]:
    """The ranks whose value is not rank 0's."""
    return [rank for rank, value in enumerate(values) if value != values[0]]
