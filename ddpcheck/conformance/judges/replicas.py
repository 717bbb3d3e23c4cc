"""Whether the ranks hold the same model all the way: as broadcast, before and after each step, and its buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge_broadcast(trained: Trained) -> Judged:
    """`initial-broadcast`: all ranks go into their first training forward with the same parameters."""
    firsts = [trace.micros[0].forward.parameters if trace.micros else None for trace in trained.traces]
    if None in firsts:
        return Judged(check="initial-broadcast", checked=0, skipped_because="not all ranks came to a forward")
    other = _others(firsts)
    findings = (
        _finding(
            "initial-broadcast",
            other,
            "job.model",
            "all ranks to begin with the parameters of one of them; each has made its own",
            f"other parameters than rank 0's in the first forward of {ranks_text(other)}",
            "Wrap the model in DistributedDataParallel, which broadcasts rank 0's, before the first forward.",
            step=0,
        ),
    )
    return Judged(check="initial-broadcast", checked=1, findings=findings if other else ())


def judge_gradients(trained: Trained) -> Judged:
    """`gradient-sync`: on entry to every step all ranks hold the same gradients."""
    return _judge_steps(
        trained,
        "gradient-sync",
        lambda step: step.gradients,
        "all ranks to hold the same gradients on entry to every step",
        "Compute the loss from the output of the DistributedDataParallel wrapper, leave no_sync() before the last "
        "forward of a step, and treat gradients alike on every rank.",
    )


def judge_parameters(trained: Trained) -> Judged:
    """`parameter-sync`: after every step, and when the trainer returns, all ranks hold the same parameters."""
    judged = _judge_steps(
        trained,
        "parameter-sync",
        lambda step: step.after,
        "all ranks to hold the same parameters after every step",
        "Begin with the same parameters and optimizer state, and step with the same gradients, on every rank.",
    )
    ends = [trace.first(training_record.Returned) for trace in trained.traces]
    if judged.findings or None in ends:
        return judged
    other = _others([tuple(end.parameters) for end in ends])
    if not other:
        return judged
    finding = _finding(
        "parameter-sync",
        other,
        "job.model",
        "all ranks to hold the same parameters when fit(job) returns",
        f"other parameters than rank 0's on {ranks_text(other)}, although they were the same after the last step, with "
        f"{trained.situation.about}",
        "Let all ranks take the same decision on what to load at the end, such as the best epoch: by a metric that was "
        "reduced over the ranks, or by rank 0's word.",
    )
    return Judged(check="parameter-sync", checked=judged.checked, findings=(finding,))


def judge_buffers(trained: Trained) -> Judged:
    """`buffer-sync`: all ranks go into every training forward with the same buffers."""
    rounds = list(zip(*(trace.micros for trace in trained.traces), strict=False))
    parted = [n for n, micros in enumerate(rounds) if _others([m.forward.statistics for m in micros])]
    if not rounds:
        return Judged(check="buffer-sync", checked=0, skipped_because="not all ranks came to a forward")
    findings: tuple[Finding, ...] = ()
    if parted:
        ranks = _others([m.forward.statistics for m in rounds[parted[0]]])
        findings = (
            _finding(
                "buffer-sync",
                ranks,
                "the running statistics of BatchNorm",
                "all ranks to go into each forward with the same buffers",
                f"others than rank 0's on {ranks_text(ranks)} in {count(len(parted), 'forward')} of {len(rounds)}, "
                f"from forward {parted[0]} on",
                "Let DistributedDataParallel broadcast the buffers (broadcast_buffers=True), or use SyncBatchNorm.",
            ),
        )
    return Judged(check="buffer-sync", checked=len(rounds), findings=findings)


def _judge_steps(
    trained: Trained, check: str, of: Callable[[Any], Sequence[bytes | None]], expected: str, advice: str
) -> Judged:
    rounds = list(zip(*(trace.steps for trace in trained.traces), strict=False))
    numbers = Counter(len(trace.steps) for trace in trained.traces)
    findings: list[Finding] = []
    if len(numbers) > 1:
        counts = ", ".join(f"{len(trace.steps)} on rank {rank}" for rank, trace in enumerate(trained.traces))
        findings.append(
            _finding(check, list(trained.ranks), "the optimizer", "all ranks to make the same steps", counts, advice)
        )
    wrong = [(n, steps) for n, steps in enumerate(rounds) if _others([_key(of(step)) for step in steps])]
    if wrong:
        first, steps = wrong[0]
        others = _others([_key(of(step)) for step in steps])
        names = trained.traces[0].names
        apart = [
            name
            for place, name in enumerate(names)
            if any(_at(of(steps[rank]), place) != _at(of(steps[0]), place) for rank in others)
        ]
        findings.append(
            _finding(
                check,
                others,
                listing(apart),
                expected,
                f"{len(apart)} of {count(len(names), 'parameter')} to differ from rank 0's on {ranks_text(others)} at "
                f"step {first} ({count(len(wrong), 'step')} of {len(rounds)} in all), with {trained.situation.about}",
                advice,
                step=first,
                number=len(wrong),
            )
        )
    return Judged(check=check, checked=len(rounds), findings=tuple(findings))


def _key(values: Iterable[bytes | None]) -> tuple[bytes | None, ...]:
    return tuple(values)


def _at(values: Sequence[bytes | None], place: int) -> bytes | None:
    return values[place] if place < len(values) else None


def _others(values: Sequence[object]) -> list[int]:
    """The ranks whose value is not rank 0's."""
    return [rank for rank, value in enumerate(values) if value != values[0]]


def _finding(
    check: str,
    ranks: list[int],
    subject: str,
    expected: str,
    found: str,
    advice: str,
    step: int | None = None,
    number: int = 1,
) -> Finding:
    return Finding(
        check=check,
        severity="error",
        ranks=tuple(ranks),
        subject=subject,
        expected=expected,
        found=found,
        advice=advice,
        step=step,
        count=number,
    )
