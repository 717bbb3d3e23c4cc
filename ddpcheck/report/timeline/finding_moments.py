"""Where on a rank's evidence a finding shows: by its step, or by its lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import those
from ddpcheck.vocabulary.model import Finding

_BY_STEP, _BY_SPAN, _BY_LINE, _BY_PULSE = range(4)
"""How a moment was found, the best first."""


class Moments:
    """Looks for the moment of each finding among the records of one rank, in their order."""

    def __init__(self, findings: Sequence[Finding], rank: int) -> None:
        self._findings = findings
        self._rank = rank
        self._lines: dict[tuple[str, int], list[int]] = {}
        self._sites: dict[int, list[int]] = {}
        self._steps: dict[int, list[int]] = {}
        self._calls: dict[str, list[int]] = {}
        """By the name that judges give a call among a finding's links."""
        self._found: dict[int, tuple[int, float]] = {}
        self._near_steps: set[int] = set()
        self.near: list[float] = []
        """When this rank made the steps that findings are about, be it one of their ranks or not."""
        self._begun: dict[int, float] = {}
        """When the steps of these began."""
        self._last = {place for place, finding in enumerate(findings) if finding.check in those("stops")}
        for place, finding in enumerate(findings):
            if finding.step is not None:
                self._near_steps.add(finding.step)
            if finding.ranks and rank not in finding.ranks and all(rank != other for other, _ in finding.proof):
                continue
            if finding.step is not None:
                self._steps.setdefault(finding.step, []).append(place)
            for link in finding.links:
                if link.startswith("call "):
                    self._calls.setdefault(link, []).append(place)
            lines = {where for other, where in finding.proof if other == rank}
            if finding.where is not None and (rank in finding.ranks or not finding.ranks):
                lines.add(finding.where)
            for where in lines:
                self._lines.setdefault((where.file, where.line), []).append(place)

    def __bool__(self) -> bool:
        return bool(self._steps or self._lines or self._calls)

    def site(self, site: ev.Site) -> None:
        """A line got its number."""
        wanted = self._lines.get((site.file, site.line))
        if wanted:
            self._sites[site.id] = wanted

    def see(self, record: Any) -> None:
        """Take in one record."""
        for place in self._sites.get(getattr(record, "site", 0), ()):
            self._note(place, _BY_PULSE if isinstance(record, ev.Pulse) else _BY_LINE, record.at)
        if isinstance(record, ev.Call):
            for place in self._calls.get(f"call {record.group} {record.number}", ()):
                self._note(place, _BY_STEP, record.at)
        elif isinstance(record, ev.Step):
            for place in self._steps.get(record.number, ()):
                if _is_of(self._findings[place], record.optimizer):
                    self._note(place, _BY_STEP, record.at)

    def step(self, number: int, site: int, at: float) -> None:
        """An optimizer's step of this number began; its record may have been left out."""
        if number in self._near_steps:
            self.near.append(at)
        for place in self._steps.get(number, ()):
            how, noted = self._found.get(place, (_BY_LINE, at))
            if how == _BY_STEP and at <= noted and at > self._begun.get(place, 0.0):
                self._begun[place] = at  # the record is written when the step is over
            elif place in self._sites.get(site, ()):
                self._note(place, _BY_SPAN, at)

    def _note(self, place: int, how: int, at: float) -> None:
        known = self._found.get(place)
        if known is None or how < known[0] or (how == known[0] == _BY_LINE and place in self._last):
            self._found[place] = how, at

    def found(self) -> dict[int, float]:
        """By finding, the moment on the rank's clock."""
        return {place: self._begun.get(place, at) for place, (_, at) in self._found.items()}


def _is_of(finding: Finding, optimizer: int) -> bool:
    """Whether a finding may be about this optimizer."""
    named = [link for link in finding.links if link.startswith("optimizer ")]
    return not named or f"optimizer {optimizer}" in named
