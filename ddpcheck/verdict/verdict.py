"""What the run of a script has come to: one value, which terminal, JSON and JUnit XML all render."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Literal

import msgspec

from ddpcheck.checks.registry import GROUP, every_check, has_part, named, named_finding, others, those
from ddpcheck.facts import parallelism_seen
from ddpcheck.judging.standstill import Standstill, standstill
from ddpcheck.judging.step_alignment import steps_made
from ddpcheck.judging.world import Judged, Process, World
from ddpcheck.verdict import missing_evidence, outside_groups, reader_notes
from ddpcheck.verdict.grouping import grouped
from ddpcheck.verdict.left_out_rules import chosen_findings, without_rules
from ddpcheck.verdict.named_lines import folder_of, lines_named
from ddpcheck.vocabulary.model import Finding, Severity, Status, Struct
from ddpcheck.vocabulary.versions import installed
from ddpcheck.vocabulary.wording import plural

Word = Literal["held", "violated", "failed", "hung", "interrupted", "nothing-checked"]


class Exit(IntEnum):
    """The exit codes of the command."""

    HELD = 0
    BROKEN = 1
    USAGE = 2
    NOTHING_CHECKED = 3
    INTERNAL = 4


class CheckResult(Struct, frozen=True, kw_only=True):
    """What became of one check."""

    status: Status
    checked: int = 0
    """Of its units, how many were compared."""
    of: int | None = 0
    """How many of them the run had; None where that is not known."""
    unit: str = "times"
    """What is counted, in the plural."""
    skipped_because: str | None = None
    accepted: int = 0
    """Findings that concern it, and do not count because somebody has accepted them."""

    @property
    def coverage(self) -> str:
        """``12 of 400 windows``."""
        of = f" of {self.of:,}" if self.of is not None else ""
        return f"{self.checked:,}{of} {self.unit}"


class Accepted(Struct, frozen=True, kw_only=True):
    """A finding that somebody has accepted: it is in the report, and does not count."""

    finding: Finding
    by: Literal["comment", "ignore", "baseline"]
    source: str
    """Where it is accepted: a line, or a file of settings or of accepted findings."""
    reason: str = ""
    """Why, in the words of whoever accepted it; empty for an entry of a baseline that has none yet."""


class RankResult(Struct, frozen=True, kw_only=True):
    """How the process of one rank ended."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    pid: int = 0


class Verdict(Struct, frozen=True, kw_only=True):
    """A whole run, judged."""

    verdict: Word
    world_size: int
    nnodes: int = 1
    checks: dict[str, CheckResult]
    findings: tuple[Finding, ...] = ()
    """Errors first; within them the earliest and most telling first."""
    accepted: tuple[Accepted, ...] = ()
    """Findings that do not count, in the same order."""
    advisories: tuple[Finding, ...] | None = None
    """Findings of severity advisory, which never count; None where they are not to be shown."""
    left_out: tuple[str, ...] = ()
    """Rules that had findings, and were left out by `checks` or `skip`."""
    ranks: tuple[RankResult, ...] = ()
    command: str = ""
    """The script and its arguments."""
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    steps: int = 0
    """Optimizer steps that were watched."""
    part: str = ""
    """Why the evidence covers a part of the run, as a clause; empty where it covers all of it."""
    missing: tuple[int, ...] = ()
    """Ranks that have left no evidence."""
    parallelism: str = ""
    """How the program was seen to spread its model over the ranks, and what of it was not checked; empty where nothing
    was trained on several ranks."""
    understood: bool = True
    """False where ranks trained, and nobody has said or shown what of the model each of them holds."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of how this verdict came to be, as sentences."""
    interrupted_by: int | None = None
    """The signal that asked the program to end before its time."""
    hang: Standstill | None = None
    internal: tuple[str, ...] = ()
    """What went wrong in ddpcheck itself."""
    lost: tuple[str, ...] = ()
    """Files that should have been written by now and could not be, as sentences."""
    folder: str = ""
    """The working directory of the ranks: relative files lie below it."""
    lines: dict[str, str] = msgspec.field(default_factory=dict)
    """The text of the lines that findings name, by ``file:line``, as it was when the program ran."""

    @property
    def errors(self) -> int:
        return sum(f.severity == "error" for f in self.findings)

    @property
    def warnings(self) -> int:
        return sum(f.severity == "warning" for f in self.findings)

    def exit_code(self, strict: bool = False) -> int:
        """The command's exit code; ``strict`` counts warnings as errors."""
        if self.verdict in ("violated", "failed", "hung") or self.errors or (strict and self.warnings):
            return Exit.BROKEN
        if self.internal:
            return Exit.INTERNAL
        if self.interrupted_by is not None:
            return 128 + self.interrupted_by  # as a shell tells of a program that a signal has ended
        return Exit.NOTHING_CHECKED if self.verdict == "nothing-checked" else Exit.HELD


def conclude(
    judged: Sequence[Mapping[str, Judged]],
    *,
    worlds: Sequence[World] = (),
    processes: Iterable[Process] = (),
    ranks: Sequence[RankResult] = (),
    chosen: Collection[str] | None = None,
    left_out: Collection[str] = (),
    failed: bool = False,
    hung: bool = False,
    interrupted_by: int | None = None,
    killed_by: int | None = None,
    ours: Sequence[str] = (),
    command: str = "",
    seconds: float = 0.0,
    versions: Mapping[str, str | None] | None = None,
    notes: Sequence[str] = (),
    internal: Sequence[str] = (),
) -> Verdict:
    """Bring what the judges say of each world to one verdict.

    ``processes`` are all that were watched, those of no world among them;
    ``chosen`` are the checks that were asked for, None for all, and
    ``left_out`` rules whose findings are not wanted; ``failed``,
    ``hung`` and ``interrupted_by`` are what the launcher has seen of the
    program as a whole; one that was interrupted is judged by what it had done
    until then (see :mod:`ddpcheck.verdict.interruption`). ``killed_by`` is the
    signal that its launcher died of. ``ours`` says how ddpcheck itself has
    brought ranks down: how the program ended is then no finding.
    """
    processes = list(processes) or [rank.process for world in worlds for rank in world]
    ranks = tuple(ranks) or results_of(worlds)
    apart = [{check: named(one, check) for check, one in of_world.items()} for of_world in judged]
    judged, gone = without_rules(apart, left_out)
    raw, advised = chosen_findings(judged, chosen)
    interrupted = interrupted_by is not None
    if ours:
        raw = [finding for finding in raw if finding.check not in those("of_endings")]
    stopped = None
    if not interrupted and not ours:
        stopped = _stopped_unseen(raw, worlds, processes, ranks, failed, hung, killed_by)
    raw += [named_finding(stopped)] if stopped is not None else []
    findings = grouped(raw)
    advisories = grouped(advised)
    part = reader_notes.part(worlds, processes)
    checks = _checks(judged, raw, findings, chosen, missing_evidence.lost(processes), part)
    trained = [world for world in worlds if world.world_size > 1 and steps_made(world)]
    parallelism = " ".join(dict.fromkeys(parallelism_seen.paragraph(world) for world in trained))
    understood = not trained or any(parallelism_seen.understood(world) for world in trained)
    word: Word = "interrupted" if interrupted else _word(raw, findings, checks, hung, understood)
    return Verdict(
        verdict=word,
        world_size=max((w.world_size for w in worlds), default=len(ranks)),
        nnodes=_nodes(worlds),
        checks=checks,
        findings=findings,
        advisories=advisories,
        left_out=gone,
        ranks=ranks,
        command=command,
        versions=dict(installed() if versions is None else versions),
        seconds=seconds,
        steps=sum(steps_made(world) for world in worlds),
        part=part,
        parallelism=parallelism,
        understood=understood,
        notes=(
            *reader_notes.unseen(worlds, processes),
            *missing_evidence.told(processes),
            *_unusable(),
            *notes,
            *reader_notes.gaps(worlds),
        ),
        missing=tuple(sorted({number for world in worlds for number in world.missing})),
        interrupted_by=interrupted_by,
        hang=_hang(worlds, judged) if word == "hung" or (interrupted and _has_hung(raw)) else None,
        internal=(*ours, *internal),
        folder=folder_of(processes),
        lines=lines_named(processes, (*findings, *advisories)),
    )


def _unusable() -> list[str]:
    """What a reader has to know of other packages' checks that are not there."""
    return [
        f"The checks of {one.prefix} (an entry point of {GROUP}) could not be loaded: {one.why}."
        for one in others().unusable
    ]


# --- findings


def _stopped_unseen(
    raw: Sequence[Finding],
    worlds: Sequence[World],
    processes: Sequence[Process],
    ranks: Sequence[RankResult],
    failed: bool,
    hung: bool,
    killed_by: int | None,
) -> Finding | None:
    """The finding for a program that failed or hung where no judge of a world has seen it."""
    if any(f.check in those("stops") and f.severity == "error" for f in raw):
        return None
    numbers = {(r.host, r.pid): r.rank for r in ranks}
    if hung:
        return outside_groups.hang(processes, numbers)
    excused = {number for world in worlds for number in reader_notes.aborted_at_exit(world)}
    endings = {r.rank: (r.exit_code, r.signal) for r in ranks if r.rank not in excused}
    lost = not worlds and any(code or signal is not None for code, signal in endings.values())
    if not (failed or lost):
        return None
    found = outside_groups.failure(processes, numbers, endings, killed_by)
    # Of an abort that is excused, mp.spawn tells the program with an exception of its own.
    told_by = found.where is None or found.subject == "ProcessExitedException"
    return None if excused and told_by and not found.ranks else found


# --- the verdict, and each check's


def _word(
    raw: Sequence[Finding], findings: Sequence[Finding], checks: Mapping[str, CheckResult], hung: bool, understood: bool
) -> Word:
    errors = [f for f in findings if f.severity == "error"]
    broken = {f.check for f in raw if f.severity == "error"}
    if "no-hang" in broken:
        stands = any(f.check == "no-hang" for f in errors)
        by_failure = any(f.check == "rank-failure" and "no-hang" in f.also for f in errors)
        # Of a program that ended by itself, a rank's failure says more than that others waited for it.
        if stands or not (by_failure or ("rank-failure" in broken and not hung)):
            return "hung"
    if "rank-failure" in broken:
        return "failed"
    return "violated" if errors else without_errors(checks, understood)


def without_errors(checks: Mapping[str, CheckResult], understood: bool) -> Literal["held", "nothing-checked"]:
    """The word for a run in which there is no error: whether anything was checked of what is trained."""
    if not understood:
        return "nothing-checked"
    asked = {check for check, result in checks.items() if result.checked}
    left_out = {check for check, result in checks.items() if result.skipped_because == NOT_ASKED}
    # What every program shows that starts, trains and ends does not alone make a run that was checked.
    endings = {check for check, its in every_check().items() if its.of_endings or not its.compares_ranks}
    ends_alone = set(every_check()) - left_out <= endings
    return "held" if asked - endings or (asked and ends_alone) else "nothing-checked"


NOT_ASKED = "left out by `checks` or `skip`"
_NO_WORLD = "no process group of two ranks or more was seen"
_ORACLE = "one run cannot show it: it takes a second one to compare with, as ddpcheck.check_trainer does"
_NOTHING = "nothing was seen that it could judge"


def _checks(
    judged: Sequence[Mapping[str, Judged]],
    raw: Sequence[Finding],
    findings: Sequence[Finding],
    chosen: Collection[str] | None,
    lost: Mapping[str, str],
    part: str,
) -> dict[str, CheckResult]:
    broken: dict[str, Status] = {}
    for severity, status in _BROKEN.items():
        concerned = {f.check for f in raw if f.severity == severity}
        concerned |= {c for f in findings if f.severity == severity for c in (f.check, *f.also)}
        broken |= dict.fromkeys(concerned, status)
    return {
        check: _check(check, judged, broken.get(check), chosen, lost.get(check, ""), part) for check in every_check()
    }


_BROKEN: dict[Severity, Status] = {"warning": "at-risk", "error": "violated"}
"""What a finding of each severity makes of its check; the later counts, where there are both."""


def _check(
    check: str,
    judged: Sequence[Mapping[str, Judged]],
    broken: Status | None,
    chosen: Collection[str] | None,
    lost: str,
    part: str,
) -> CheckResult:
    units = plural(every_check()[check].unit)
    if chosen is not None and check not in chosen and broken is None:
        return CheckResult(status="not-checked", unit=units, skipped_because=NOT_ASKED)
    said = [of_world[check] for of_world in judged if check in of_world]
    checked = sum(one.checked for one in said)
    of = max(sum(max(one.of, one.checked) for one in said), int(broken is not None))
    known = of if every_check()[check].counted else None
    if broken is not None and (broken == "violated" or not lost):
        return CheckResult(status=broken, checked=max(checked, 1), of=known, unit=units)
    if checked and not lost:
        return CheckResult(status="held", checked=checked, of=known, unit=units)
    reason = lost or next((one.skipped_because for one in said if one.skipped_because), "")
    if not reason:
        reason = _NOTHING if said else _NO_WORLD
        reason = reason if has_part(check, "run") else _ORACLE
    if part and not lost and has_part(check, "run"):
        reason = f"{part}; as far as it goes, {reason}"
    return CheckResult(status="not-checked", of=known, unit=units, skipped_because=reason)


# --- what else the evidence tells


def _has_hung(raw: Iterable[Finding]) -> bool:
    return any(f.check == "no-hang" and f.severity == "error" for f in raw)


def _hang(worlds: Sequence[World], judged: Sequence[Mapping[str, Judged]]) -> Standstill | None:
    """Where the ranks of the world that hangs stand; the last world, where no judge has seen it."""
    for world, of_world in zip(worlds, judged, strict=False):
        if "no-hang" in of_world and any(f.severity == "error" for f in of_world["no-hang"].findings):
            return standstill(world)
    return standstill(worlds[-1]) if worlds else None


def results_of(worlds: Sequence[World]) -> tuple[RankResult, ...]:
    """How the ranks of all worlds ended; of one that was in several, its last ending."""
    found: dict[int, RankResult] = {}
    for world in worlds:
        for rank in world:
            began = rank.process.began
            found[rank.rank] = RankResult(
                rank=rank.rank,
                exit_code=rank.exit[0],
                signal=rank.exit[1],
                host=began.host if began is not None else "",
                pid=rank.process.pid,
            )
    return tuple(found[number] for number in sorted(found))


def _nodes(worlds: Sequence[World]) -> int:
    began = [rank.process.began for world in worlds for rank in world if rank.process.began is not None]
    return max(len({b.node for b in began}), len({b.host for b in began}), 1)
