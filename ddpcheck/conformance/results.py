"""What became of the checks of a trainer: as data, and as a table of one screen."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from ddpcheck.judging.values_by_key import by_key
from ddpcheck.report.console import console_on, ruled
from ddpcheck.report.finding_text import text_of
from ddpcheck.vocabulary.model import Finding, Struct
from ddpcheck.vocabulary.wording import count, listing

Status = Literal["held", "at-risk", "violated", "not-checked", "expected"]

_EXPLAINED: tuple[Status, ...] = ("expected", "not-checked")

_WORDS: dict[Status, str] = {
    "violated": "VIOLATED",
    "expected": "expected",
    "at-risk": "at risk",
    "held": "held",
    "not-checked": "-",
}
"""Each status in the table; the first that occurs stands for all."""


class Result(Struct, frozen=True, kw_only=True):
    """One check at one world size."""

    check: str
    world_size: int
    status: Status
    """``expected``: violated, as ``expected_failures`` said it would be."""
    reason: str = ""
    """Why it was not checked, or why the failure was expected; of an unexpected pass, that it is one."""
    findings: tuple[Finding, ...] = ()
    checked: int = 0
    """How often it was checked: steps, epochs, reports."""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """As pytest's items are called: the check, and the number of ranks."""
        return item_id(self.check, self.world_size)

    @property
    def of_its_training(self) -> bool:
        """Not the check is violated: what it was to be judged by came to no end."""
        return bool(self.findings) and all(found.check != self.check.partition(":")[0] for found in self.findings)

    @property
    def title(self) -> str:
        """One line, for where it is violated or at risk."""
        if self.status == "at-risk":
            return f"{self.name} at risk"
        return f"{self.name} {'could not be judged: its training failed' if self.of_its_training else 'violated'}"

    @property
    def text(self) -> str:
        """What there is to say of it."""
        told = text_of(self.findings) if self.findings else ""
        return "\n".join(part for part in (self.reason, told) if part)


def item_id(check: str, world_size: int) -> str:
    """``gradient-oracle:clipping-2ranks``."""
    return f"{check}-{world_size}rank{'s' if world_size > 1 else ''}"


class Results(Sequence[Result]):
    """All results of one trainer; ``str()`` of them is a table."""

    def __init__(self, title: str, results: Sequence[Result], seconds: float = 0.0) -> None:
        self.title, self.seconds = title, seconds
        self._results = tuple(results)

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: Any) -> Any:
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def of(self, status: Status) -> tuple[Result, ...]:
        """The results of one status."""
        return tuple(result for result in self if result.status == status)

    @property
    def ok(self) -> bool:
        """Nothing is violated, nothing passed that was expected to fail, and something was checked."""
        return not self.of("violated") and bool(self.of("held") or self.of("at-risk") or self.of("expected"))

    def __repr__(self) -> str:
        return f"<Results of {self.title}: {self.summary}>"

    @property
    def summary(self) -> str:
        """The counts in one line."""
        parts = [f"{len(self.of('held'))} held", f"{len(self.of('violated'))} violated"]
        parts += [f"{len(risky)} at risk"] if (risky := self.of("at-risk")) else []
        parts += [f"{len(found)} failed as expected"] if (found := self.of("expected")) else []
        parts += [f"{len(idle)} not checked"] if (idle := self.of("not-checked")) else []
        return ", ".join(parts) + (f" in {self.seconds:.1f} s" if self.seconds else "")

    def __str__(self) -> str:
        """A table of one screen, what is violated or at risk, and why something was not checked."""
        out = io.StringIO()
        console = console_on(out)
        console.width = 100
        console.print(f"{self.title}: {self.summary}")
        console.print(self._table(console))
        told = (*_grouped(self.of("violated"), _fault).values(), *_grouped(self.of("at-risk"), _fault).values())
        for found in told:
            console.print(f"\n{found[0].title}")
            console.print(_indented(found[0].text))
            others = _grouped(found[1:], lambda result: result.check)
            if others:
                likewise = [f"{check} with {_sizes(some)}" for check, some in others.items()]
                console.print(f"  and likewise {listing(likewise, 6)}")
        for result_kind in _EXPLAINED:
            words = "failed as expected" if result_kind == "expected" else "not checked"
            for reason, found in _grouped(self.of(result_kind), lambda result: result.reason).items():
                names = _grouped(found, lambda result: result.check)
                console.print(f"\n{words}: {reason}")
                console.print(_indented(listing([f"{name} ({_sizes(some)})" for name, some in names.items()], 6)))
        return out.getvalue().rstrip()

    def _table(self, console: Console) -> Table:
        """A row for each check id: its situations are counted."""
        sizes = sorted({result.world_size for result in self})
        table = ruled(console)
        table.add_column("check")
        for size in sizes:
            table.add_column(count(size, "rank"))
        for check, found in _grouped(self, lambda result: result.check.partition(":")[0]).items():
            table.add_row(check, *(_cell([result for result in found if result.world_size == size]) for size in sizes))
        return table


def _cell(results: Sequence[Result]) -> str:
    """The worst that there is to say of one check id at one world size."""
    for status, word in _WORDS.items():
        number = sum(result.status == status for result in results)
        if number:
            return f"{word} {number} of {len(results)}" if len(results) > 1 and number < len(results) else word
    return ""


def _grouped(results: Iterable[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
    return by_key((key(result), result) for result in results)


def _fault(result: Result) -> str:
    """What is told once: a check, or the training that failed, whichever checks were to look at it."""
    return result.findings[0].subject if result.of_its_training else result.check


def _sizes(results: Iterable[Result]) -> str:
    return f"{', '.join(str(result.world_size) for result in results)} ranks"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
