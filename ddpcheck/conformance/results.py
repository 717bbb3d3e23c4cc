"""What became of the checks of a trainer: as data, and as a table of one screen."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Group
from rich.text import Text

from ddpcheck.model import Finding, Struct
from ddpcheck.report.console import console_on, ruled
from ddpcheck.report.findings import text_of
from ddpcheck.wording import count, listing

Status = Literal["held", "violated", "not-exercised", "expected"]

_SIGNS: dict[Status, str] = {"held": "held", "violated": "VIOLATED", "not-exercised": "-", "expected": "expected"}


class Result(Struct, frozen=True, kw_only=True):
    """One check at one world size."""

    check: str
    world_size: int
    status: Status
    """``expected``: violated, as ``expected_failures`` said it would be."""
    reason: str = ""
    """Why it was not exercised, or why the failure was expected; of an unexpected pass, that it is one."""
    findings: tuple[Finding, ...] = ()
    exercised: int = 0
    """How often it was exercised: steps, epochs, reports."""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """As pytest's items are called: the check, and the number of ranks."""
        return item_id(self.check, self.world_size)

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

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def of(self, status: Status) -> tuple[Result, ...]:
        """The results of one status."""
        return tuple(result for result in self if result.status == status)

    @property
    def ok(self) -> bool:
        """Nothing is violated, nothing passed that was expected to fail, and something was checked."""
        return not self.of("violated") and bool(self.of("held") or self.of("expected"))

    def __repr__(self) -> str:
        return f"<Results of {self.title}: {self.summary}>"

    @property
    def summary(self) -> str:
        """The counts in one line."""
        parts = [f"{len(self.of('held'))} held", f"{len(self.of('violated'))} violated"]
        parts += [f"{len(found)} failed as expected"] if (found := self.of("expected")) else []
        parts += [f"{len(idle)} not exercised"] if (idle := self.of("not-exercised")) else []
        return ", ".join(parts) + (f" in {self.seconds:.1f} s" if self.seconds else "")

    def __str__(self) -> str:
        """The table, what is violated, and why something was not exercised."""
        out = io.StringIO()
        console = console_on(out)
        console.width = 100
        console.print(Group(*self._parts(console)))
        return out.getvalue().rstrip()

    def _parts(self, console):  # type: ignore[no-untyped-def]
        sizes = sorted({result.world_size for result in self})
        table = ruled(console)
        table.add_column("check")
        for size in sizes:
            table.add_column(count(size, "rank"))
        by_check: dict[str, dict[int, Result]] = {}
        for result in self:
            by_check.setdefault(result.check, {})[result.world_size] = result
        for check, found in by_check.items():
            table.add_row(check, *(_SIGNS[found[size].status] if size in found else "" for size in sizes))
        yield Text(f"{self.title}: {self.summary}")
        yield table
        for result in self.of("violated"):
            yield Text(f"\n{result.name}")
            yield Text(_indented(result.text))
        reasons: dict[str, list[str]] = {}
        for result in (*self.of("expected"), *self.of("not-exercised")):
            told = "failed as expected" if result.status == "expected" else "not exercised"
            reasons.setdefault(f"{told}: {result.reason}", []).append(result.name)
        for reason, names in reasons.items():
            yield Text(f"\n{reason}\n  {listing(names, 6)}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
