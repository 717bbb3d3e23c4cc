"""What one further example of a property costs, where ranks and group are alive, and how soon a hang is shrunk."""

from __future__ import annotations

import statistics

from figures import Row, spread
from inner import MeasurementFailed, Session, Workbench

EXAMPLE = 0.003
FIVE_HUNDRED = 5.0
HANG = 60.0
SMALLEST = ("number=43", "also=[0, 0]")


class Examples:
    """The times of all rounds so far."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def round(self, bench: Workbench) -> None:
        session = bench.session("inner_properties.py", must_pass=False)
        for name in ("add", "step", "add_1", "add_500", "alone_500", "step_1", "step_100", "hangs"):
            self.times.setdefault(name, []).extend(session.seconds(f"test_{name}", 2))
        _as_they_must(session)

    def rows(self) -> list[Row]:
        return [
            self._further(
                "one further example, 2 ranks, one all_reduce; against a test of its own", "add", 500, EXAMPLE
            ),
            self._further("one further example, 2 ranks, one DDP step, compared; the same", "step", 100, None),
            Row(
                "500 examples, 2 ranks, one all_reduce; against hypothesis alone, with an empty body",
                spread(self.times["add_500"], 2),
                spread(self.times["alone_500"], 2),
                "",
                f"{FIVE_HUNDRED:g} s",
                max(self.times["add_500"]) <= FIVE_HUNDRED,
            ),
            Row(
                "a hang, found and shrunk to its smallest example at a stall limit of 1 s",
                spread(self.times["hangs"], 1),
                "",
                "",
                f"{HANG:g} s",
                max(self.times["hangs"]) <= HANG,
            ),
        ]

    def _further(self, what: str, name: str, examples: int, target: float | None) -> Row:
        many, one = self.times[f"{name}_{examples}"], self.times[f"{name}_1"]
        each = [(all_of_them - first) / (examples - 1) for all_of_them, first in zip(many, one, strict=True)]
        ratio = statistics.median(each) / statistics.median(self.times[name])
        wanted = "" if target is None else f"{target * 1000:g} ms"
        reached = None if target is None else statistics.median(each) <= target
        return Row(what, spread(each, 4), spread(self.times[name], 4), f"{ratio:.3f}", wanted, reached)


def _as_they_must(session: Session) -> None:
    for test in session.tests:
        hangs = "test_hangs" in test["test"]
        right = all(part in test["text"] for part in SMALLEST) if hangs else test["outcome"] == "passed"
        if not right:
            raise MeasurementFailed(f"{test['test']} did not go as it must: {test['text'][-2000:]}")
