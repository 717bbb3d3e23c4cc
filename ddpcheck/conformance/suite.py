"""Runs the checks of one trainer: each is judged once its situations have been trained."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ddpcheck.checks.registry import named
from ddpcheck.conformance.expected_failures import Expected
from ddpcheck.conformance.results import Result, Status
from ddpcheck.conformance.situation_runner import Runner, TooManyHangs
from ddpcheck.conformance.suite_checks import BY_CHECK, CHECKLIST
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import BY_NAME, LOSS_KINDS, SHARDED
from ddpcheck.trainings.suite_row import ANY, ORDINARY, Row
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.verdict.grouping import grouped
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.wording import listing

WORLD_SIZES = (1, 2, 3, 4)


class Suite:
    """The checks of one trainer, by check and world size."""

    def __init__(
        self,
        world_sizes: Sequence[int] = WORLD_SIZES,
        checks: Collection[str] | None = None,
        losses: Collection[str] = ("samples",),
        expected_failures: Mapping[str, str] | None = None,
        parallelism: Collection[str] = (),
    ) -> None:
        """Raises ValueError with a sentence for what cannot be."""
        self.losses = _checked_losses(losses)
        sharded = _checked_parallelism(parallelism)
        sizes = _checked_sizes(world_sizes)
        wanted = _chosen(checks)
        self.all = [
            (check.name, size)
            for check in CHECKLIST
            for size in sizes
            if check.name in wanted
            and check.fits(size, self.losses, sharded)
            and all(other in sizes for other in check.trained_in(size))
        ]
        for one in sharded:
            if checks is None and all(BY_CHECK[name].parallelism != one for name, _ in self.all):
                least = " or ".join(str(n) for n in BY_NAME[one].world_sizes or ("two", "more"))
                raise ValueError(f"parallelism names {one!r}, which is trained in {least} ranks: world_sizes={sizes}")
        if not self.all:
            raise ValueError(
                f"no check is left of {listing(wanted)} for world_sizes={list(sizes)} and losses={list(self.losses)}: "
                "a suite that checks nothing cannot hold"
            )
        if not isinstance(expected_failures, Mapping | None):
            raise ValueError(f"expected_failures is {expected_failures!r}: expected a dict of names and reasons")
        self.expected = Expected(expected_failures or {}, self.all)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.all)

    def result(self, runner: Runner, name: str, world_size: int) -> Result:
        """Judge one check, training what has not been trained yet; a result as it is expected, or not."""
        begun = clock.now()
        judged, reason = self._judged(runner, BY_CHECK[name], world_size)
        judged = named(judged, BY_CHECK[name].id)
        seconds = clock.now() - begun
        common: dict[str, Any] = {
            "check": name,
            "world_size": world_size,
            "checked": judged.checked,
            "seconds": seconds,
        }
        errors = tuple(f for f in judged.findings if f.severity == "error")
        expected = self.expected.reason(name, world_size)
        if errors and expected:
            return Result(status="expected", reason=expected, findings=errors, **common)
        if errors:
            return Result(status="violated", findings=errors, **common)
        if not judged.checked:
            return Result(status="not-checked", reason=reason or judged.skipped_because, **common)
        if self.expected.must_fail(name, world_size):
            told = f"held, although expected_failures says that it fails ({expected}): take it off that list"
            return Result(status="violated", reason=told, **common)
        status: Status = "at-risk" if judged.findings else "held"
        return Result(status=status, findings=tuple(judged.findings), **common)

    def _judged(self, runner: Runner, check: Row, world_size: int) -> tuple[Judged, str]:
        """What the judge says, and why there is nothing for it to judge."""
        nothing = Judged(check=check.id, checked=0)
        try:
            return self._judged_by_trainings(runner, check, world_size, nothing)
        except TooManyHangs as error:
            return nothing, str(error)

    def _judged_by_trainings(self, runner: Runner, check: Row, world_size: int, nothing: Judged) -> tuple[Judged, str]:
        plain = runner.training("plain", world_size)
        adapted = BY_CHECK["adapter"].judge([plain])
        if check.name == "adapter":
            return _explained(adapted.named(check.id), [plain]), ""
        if plain.unsupported:
            return nothing, f"not supported: {plain.unsupported}"
        if adapted.findings:
            return nothing, "the adapter has to be right first: see the check adapter"
        trained = self._trainings(runner, check, world_size)
        kept = [one for one in trained if not one.unsupported]
        if check.situations != (ANY,) and len(kept) < len(trained):
            return nothing, f"not supported: {next(one.unsupported for one in trained if one.unsupported)}"
        if not check.also_failed:
            if check.situations != (ANY,) and kept[0].failed:
                return Judged(check=check.id, checked=1, findings=(kept[0].failure(),)).named(check.id), ""
            kept = [one for one in kept if not one.failed]
        if not kept:
            return nothing, "no training came to its end"
        return _explained(named(check.judge(kept), check.id), kept), ""

    def _trainings(self, runner: Runner, check: Row, world_size: int) -> list[Trained]:
        """What came of the check's situations; of those of a check of all trainings, until too many have hung."""
        if check.situations != (ANY,):
            return [
                runner.training(name, size, oracle=check.oracle and place == 0)
                for place, (name, size) in enumerate(zip(check.situations, check.trained_in(world_size), strict=True))
            ]
        found: list[Trained] = []
        with contextlib.suppress(TooManyHangs):
            found.extend(  # one by one: those before the one too many count
                runner.training(name, world_size)
                for name in ORDINARY
                if BY_NAME[name].loss in self.losses and BY_NAME[name].fits(world_size)
            )
        return found


def _explained(judged: Judged, trained: Sequence[Trained]) -> Judged:
    """Whatever the judges of a script's run can explain of a finding, the suite explains in the same words."""
    found = [one for training in trained for one in grouped(f for j in training.watched.values() for f in j.findings)]
    findings = []
    for finding in judged.findings:
        first = next((f for f in found if f.cause and finding.check in (f.check, *f.also)), finding)
        findings.append(replace(finding, cause=first.cause, advice=first.advice))
    return replace(judged, findings=tuple(findings))


def _iterated(name: str, given: Any, of: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise ValueError(f"{name} is {given!r}: expected a list of {of}") from None


def _checked_losses(losses: Collection[str]) -> tuple[str, ...]:
    losses = [losses] if isinstance(losses, str) else _iterated("losses", losses, "kinds of loss")
    if not losses:
        raise ValueError(f"losses is empty: name some of {', '.join(LOSS_KINDS)}")
    for loss in losses:
        if loss not in LOSS_KINDS:
            raise ValueError(f"losses names {loss!r}: there are {', '.join(LOSS_KINDS)}")
    return tuple(losses)


def _checked_parallelism(parallelism: Collection[str]) -> tuple[str, ...]:
    known = ("ddp", *SHARDED)
    listed = [parallelism] if isinstance(parallelism, str) else _iterated("parallelism", parallelism, "names")
    for one in listed:
        if one not in known:
            raise ValueError(f"parallelism names {one!r}: there are {', '.join(known)}")
    return tuple(one for one in dict.fromkeys(listed) if one in SHARDED)


def _checked_sizes(world_sizes: Sequence[int]) -> tuple[int, ...]:
    sizes = [world_sizes] if isinstance(world_sizes, int) else _iterated("world_sizes", world_sizes, "numbers of ranks")
    if not sizes:
        raise ValueError("world_sizes is empty: name the numbers of ranks to train with, such as [1, 2, 3, 4]")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 16:
            raise ValueError(f"world_sizes has {size!r}: expected whole numbers from 1 to 16")
    return tuple(dict.fromkeys(sizes))


def _chosen(checks: Collection[str] | None) -> list[str]:
    """The names that are meant: each of ``checks`` is one, or a pattern of some, as for file names."""
    known = [check.name for check in CHECKLIST]
    if checks is None:
        return known
    found: set[str] = set()
    listed = [checks] if isinstance(checks, str) else _iterated("checks", checks, "names of checks")
    if not listed:
        raise ValueError("checks is empty: leave it out for all of them")
    for wanted in listed:
        fitting = fnmatch.filter(known, str(wanted))
        if not fitting:
            close = difflib.get_close_matches(str(wanted), known, n=1)
            hint = f": did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"checks names {wanted!r}, and no check is called so{hint}")
        found.update(fitting)
    return [name for name in known if name in found]
