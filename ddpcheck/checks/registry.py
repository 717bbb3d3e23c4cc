"""Finds the checks: one folder each, here and in packages of the entry point group ``ddpcheck.checks``.

There is no other list of checks. A check's id is the name of its folder, with
hyphens; one of another package has the name of the entry point before it, as in
``mylib/loss-scale-sync``. What a folder holds:

- ``__init__.py`` with ``CHECK``, a :class:`~ddpcheck.checks.check.Check`
- ``explanation.md``, the text of ``ddpcheck explain``
- ``run.py`` with ``judge(world) -> Judged``, for the run of a script
- ``assertion.py`` with ``judge(facts, rounds) -> findings or a Question``, for assertions
- ``conformance.py`` with ``ROWS``, what the conformance suite asks of it
- ``libraries.py`` with ``FIXES``, its fixes in the terms of training libraries

All but the first two may be missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import metadata, resources
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ddpcheck.checks.check import OF_ASSERTIONS, Check, Rule

if TYPE_CHECKING:  # a session without distributed tests finds checks, and judges none
    from ddpcheck.judging.world import Judged
    from ddpcheck.vocabulary.model import Finding

GROUP = "ddpcheck.checks"
"""The entry point group of other packages' checks, and the package of our own."""

Part = Literal["run", "assertion", "conformance", "libraries"]


class Unusable(NamedTuple):
    """A package's checks that could not be loaded."""

    prefix: str
    why: str


class Others(NamedTuple):
    """What other packages bring."""

    homes: dict[str, str]
    """By id: the package of the check's folder."""
    checks: dict[str, Check]
    unusable: tuple[Unusable, ...]


@cache
def checks() -> Mapping[str, Check]:
    """Our own checks by id, in their order."""
    found = dict(_in(importlib.import_module(GROUP)))
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


@cache
def others() -> Others:
    """The checks of other packages; one that cannot be imported is told of, and no reason to fail."""
    homes: dict[str, str] = {}
    found: dict[str, Check] = {}
    unusable = []
    for entry in metadata.entry_points(group=GROUP):
        try:
            package = entry.load()
            for check, its in sorted(_in(package)):
                homes[f"{entry.name}/{check}"] = f"{package.__name__}.{check.replace('-', '_')}"
                found[f"{entry.name}/{check}"] = its
        except Exception as error:
            unusable.append(Unusable(entry.name, f"{type(error).__name__}: {error}"))
    return Others(homes, found, tuple(unusable))


def every_check() -> dict[str, Check]:
    """Our own checks, and then those of others."""
    return {**checks(), **others().checks}


def every_rule() -> dict[str, Rule]:
    """The rules of all checks by id: ``check/rule``."""
    return {f"{check}/{rule.name}": rule for check, its in every_check().items() for rule in its.rules}


def check_of(name: str) -> str | None:
    """The check that is called so, or has a rule that is; None where there is neither."""
    return name if name in every_check() else name.rpartition("/")[0] if name in every_rule() else None


def those(flag: Literal["of_endings", "stops", "told_at_end"]) -> tuple[str, ...]:
    """Our own checks that say so of themselves."""
    return tuple(check for check, its in checks().items() if getattr(its, flag))


@cache
def part(check: str, name: Part) -> ModuleType | None:
    """A module of a check's folder; None where it has no such part."""
    home = f"{_home(check)}.{name}"
    return importlib.import_module(home) if importlib.util.find_spec(home) is not None else None


def judge_of(check: str, name: Part) -> Any:
    """The judge of one kind of evidence, whose findings have the check's id; None where the check has none."""
    module = part(check, name)
    return partial(_named, check, module.judge) if module is not None else None


def _named(check: str, judge: Callable[..., Any], *evidence: Any) -> Any:
    from ddpcheck.judging.world import Judged

    said = judge(*evidence)
    if isinstance(said, (tuple, list)):
        return named(Judged(checked=1, findings=tuple(said)), check).findings
    return named(said, check) if isinstance(said, Judged) else said


def named(said: Judged, check: str) -> Judged:
    """What a judge has said, under the check's id, with rules by their names in full; advisories stand apart."""
    from msgspec.structs import replace

    findings = [named_finding(finding, check) for finding in (*said.findings, *said.advisories)]
    return replace(
        said,
        check=check,
        findings=tuple(finding for finding in findings if finding.severity != "advisory"),
        advisories=tuple(finding for finding in findings if finding.severity == "advisory"),
    )


def named_finding(finding: Finding, check: str = "") -> Finding:
    """The finding with its check's id and its rule's name in full; that of an advisory rule is an advisory.

    A finding of another package has the id that its check has here, whatever it calls itself.
    """
    from msgspec.structs import replace

    if check in others().checks:
        finding = replace(finding, check=check, rule=finding.rule.rpartition("/")[2])
    finding = finding.named(check)
    known = every_check().get(finding.check)
    advisory = [one.name for one in known.rules if one.advisory] if known is not None else []
    return replace(finding, severity="advisory") if finding.rule.rpartition("/")[2] in advisory else finding


def has_part(check: str, name: Part) -> bool:
    """Whether a check's folder has such a module, without importing it."""
    return importlib.util.find_spec(f"{_home(check)}.{name}") is not None


def explanation(check: str) -> str:
    """The text of a check's folder, as Markdown; empty where another package has written none."""
    text = resources.files(_home(check)).joinpath("explanation.md")
    return text.read_text(encoding="utf-8") if check in checks() or text.is_file() else ""


def _home(check: str) -> str:
    return f"{GROUP}.{check.replace('-', '_')}" if check in checks() else others().homes[check]


def _in(package: ModuleType) -> Iterator[tuple[str, Check]]:
    """The checks among a package's folders."""
    for found in pkgutil.iter_modules(package.__path__):
        if found.ispkg:
            check = importlib.import_module(f"{package.__name__}.{found.name}").CHECK
            rules = (*check.rules, *(OF_ASSERTIONS if check.assertions else ()))
            yield found.name.replace("_", "-"), check._replace(rules=rules)
