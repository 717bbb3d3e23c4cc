"""Trainings of the conformance suite as their ranks would have recorded them, written by hand."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ddpcheck.evidence import training_record
from ddpcheck.evidence.oracle_comparison import ComparedStep, Comparison, Gap, Likeness
from ddpcheck.outcomes.test_outcome import Outcome
from ddpcheck.trainings.situations import BY_NAME, Situation
from ddpcheck.trainings.steps_with_micro_batches import Trace
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding, Leftover, PhaseReport, Plan, RankEnding, RunRecord

NAMES = ["first.weight", "last.weight"]


def doubles(*values: float) -> bytes:
    """A parameter's elements as their bytes."""
    return array("d", values).tobytes()


def micro(
    samples: Sequence[int],
    *,
    draws: Sequence[float] = (),
    of_numpy: Sequence[float] = (),
    arithmetic: str = "",
    masks: Sequence[bytes] = (),
    parameters: str = "p",
    statistics: str = "s",
    factor: float | None = 1.0,
    lost: bool = True,
) -> list[training_record.Fact]:
    """A micro-batch: its forward, its loss, and what came back to that."""
    found: list[training_record.Fact] = [
        training_record.Forward(
            training=True,
            samples=list(samples),
            draws=list(draws) or [0.0] * len(samples),
            of_numpy=list(of_numpy),
            arithmetic=arithmetic,
            masks=list(masks),
            parameters=parameters,
            statistics=statistics,
        )
    ]
    if lost:
        found.append(training_record.Lost(value=1.0, number=len(samples)))
    if factor is not None:
        found.append(training_record.Pulled(factor=factor))
    return found


def step(
    before: float = 0.0, after: float | None = None, gradient: float | None = 1.0, rate: float = 0.1, moments: str = "m"
) -> training_record.Step:
    """An optimizer step of two parameters, both of which have this one value."""
    data = None if gradient is None else doubles(gradient)
    return training_record.Step(
        rates=[rate],
        before=[doubles(before)] * 2,
        gradients=[data, data],
        after=[doubles(before + 1 if after is None else after)] * 2,
        moments=moments,
    )


def trace(*recorded: training_record.Fact | list[training_record.Fact], returns: float | str | None = "last") -> Trace:
    """What one rank has recorded, from the start to the return, where it came to that; with what its last step left."""
    flat: list[Any] = [training_record.Began(parameters=NAMES)]
    for one in recorded:
        flat += one if isinstance(one, list) else [one]
    steps = [one for one in flat if isinstance(one, training_record.Step)]
    if returns == "last":
        left = list(steps[-1].after) if steps else [doubles(9.0)] * 2
        flat.append(training_record.Returned(parameters=left))
    elif returns is not None:
        flat.append(training_record.Returned(parameters=[doubles(float(returns))] * 2))
    return Trace(flat)


def stepped(*batches: Sequence[int], **changed: Any) -> Trace:
    """A step for each batch, each from where the one before has come to."""
    recorded: list[Any] = []
    for number, samples in enumerate(batches):
        recorded += [micro(samples), step(float(number), **changed)]
    return trace(*recorded)


def situation(name: str = "plain", **changed: Any) -> Situation:
    """A situation of the suite, with some of it changed."""
    return replace(BY_NAME[name], **changed)


def trained(
    where: Situation | str,
    *traces: Trace,
    ended: Sequence[RankEnding] | None = None,
    headline: str = "",
    text: str = "",
    compared: Iterable[ComparedStep] | None = None,
    leftovers: Sequence[Leftover] = (),
    root: int | None = None,
) -> Trained:
    """A training with these traces; it ended well where nothing else is said."""
    size = len(traces)
    plan = Plan(nodeid="t", path="t.py", world_size=size, backend="gloo", device="cpu", timeout=60.0, shared_dir="",
                own_dirs="", capture="fd")  # fmt: skip
    endings = tuple(ended or [RankEnding(rank=rank, kind="finished", at=1.0) for rank in range(size)])
    failed = any(ending.kind != "finished" or ending.reports for ending in endings)
    return Trained(
        BY_NAME[where] if isinstance(where, str) else where,
        size,
        RunRecord(plan=plan, endings=endings, leftovers=tuple(leftovers)),
        Outcome(result="failed" if failed else "passed", headline=headline, root=root),
        text,
        traces,
        None if compared is None else Comparison(steps=tuple(compared)),
    )


def killed(rank: int = 0) -> RankEnding:
    return RankEnding(rank=rank, kind="died", at=1.0, signal=9)


def raised(rank: int, words: str) -> RankEnding:
    """A rank whose test failed, and what its report says."""
    report = PhaseReport(phase="call", outcome="failed", at=1.0, data={"longrepr": words})
    return RankEnding(rank=rank, kind="finished", at=1.0, reports=(report,))


def hung(rank: int) -> RankEnding:
    return RankEnding(rank=rank, kind="hung", at=1.0)


RIGHT = Likeness(ratio=1.0, cosine=1.0)
ASKEW = Likeness(ratio=0.9, cosine=0.9)


def compared(
    gradient: Likeness = RIGHT, number: int = 0, *, worst: float = 1.0, allowed: float = 1e-9, **more: Any
) -> ComparedStep:
    """One step of a comparison, wrong by default."""
    right = Gap(name="first.weight", worst=0.0, allowed=allowed, index=(0,), found=1.0, expected=1.0, same_bits=True)
    gap = Gap(name="last.weight", worst=worst, allowed=allowed, index=(0, 1), found=worst, expected=0.0,
              same_bits=worst == 0.0)  # fmt: skip
    given = {"update": gradient, "micros": (1, 1), "numbers": (6, 6), "norm": 2.0, "expected_norm": 1.0, **more}
    return ComparedStep(step=number, gaps=(right, gap), gradient=gradient, **given)


def only(findings: Sequence[Finding]) -> Finding:
    """The one finding that there is."""
    (finding,) = findings
    assert finding.severity == "error"
    assert finding.advice.endswith(".")
    return finding
