"""The settings of a project, ``[tool.ddpcheck]`` in pyproject.toml: found, read, and seen to be right."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ddpcheck.acceptance.ignore_entries import Ignore
from ddpcheck.checks.registry import check_of, every_check, has_part, those
from ddpcheck.report.explanations import unknown
from ddpcheck.report.report_files import reason
from ddpcheck.vocabulary import regular_files
from ddpcheck.vocabulary.model import Severity, Struct

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "pyproject.toml"
TABLE = "[tool.ddpcheck]"

T = TypeVar("T")


class WrongSettings(Exception):
    """The settings cannot be followed; the text is one sentence that names the file and the entry."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a project has set; None, or nothing, where it leaves that to the command line and the defaults."""

    path: str = ""
    """The file, as messages name it; empty where there is none."""
    checks: tuple[str, ...] | None = None
    skip: tuple[str, ...] | None = None
    strict: bool | None = None
    advise: bool | None = None
    severity: Mapping[str, Severity] = msgspec.field(default_factory=dict)
    ignore: tuple[Ignore, ...] = ()
    baseline: Path | None = None
    stall_timeout: float | None = None
    evidence_limit: int | None = None

    @property
    def folder(self) -> str:
        """Where the file is: what entries name is relative to it."""
        return os.path.dirname(os.path.abspath(self.path)) if self.path else os.getcwd()


def found_for(script: Path | None) -> Settings:
    """The settings that are nearest: from the script's folder upwards, and else from the working directory.

    ``script`` is None where the program is no file of Python's. A pyproject.toml
    without the table is passed over. Raises WrongSettings.
    """
    for start in ([script.parent] if script is not None else []) + [Path()]:
        for folder in _upwards(start):
            try:
                text = regular_files.read(folder / NAME, links=True).decode()
            except (OSError, UnicodeDecodeError):
                continue
            if "ddpcheck" in text and (settings := _parsed(_shown(folder / NAME), text)) is not None:
                return settings
    return Settings()


def read(path: Path) -> Settings:
    """The settings of a file that was named; raises WrongSettings."""
    try:
        text = regular_files.read(path, links=True).decode()
    except FileNotFoundError:
        raise WrongSettings(f"there is no file {path}, which --config names") from None
    except UnicodeDecodeError:
        raise WrongSettings(f"{path} is no TOML: it is not written in UTF-8") from None
    except OSError as error:
        raise WrongSettings(f"{path}, which --config names, cannot be read: {reason(error)}") from None
    settings = _parsed(str(path), text)
    if settings is None:
        raise WrongSettings(f"{path}, which --config names, has no {TABLE}")
    return settings


def _upwards(folder: Path) -> Iterator[Path]:
    whole = Path(os.path.abspath(folder))
    return iter((whole, *whole.parents))


def _shown(path: Path) -> str:
    """Below the working directory by its path from there, else whole."""
    below = os.path.relpath(path)
    return str(path) if below.startswith(os.pardir) else below


def _parsed(shown: str, text: str) -> Settings | None:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        if "tool.ddpcheck" not in text:  # somebody else's to fix
            return None
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise WrongSettings(f"{shown} is no TOML: {why}") from None
    table = document.get("tool", {})
    table = table.get("ddpcheck") if isinstance(table, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise WrongSettings(f"{shown}: {TABLE} is {_kind(table)}, not a table")
    return _Reader(shown).settings(table)


class _Reader:
    """Reads one table, and says of what is wrong where it stands."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._place = TABLE

    def settings(self, table: dict[str, Any]) -> Settings:
        self._known(table, _SETTINGS)
        return Settings(
            path=self._shown,
            checks=self._optional(table, "checks", self._judged_checks),
            skip=self._optional(table, "skip", self._checks),
            strict=self._optional(table, "strict", self._flag),
            advise=self._optional(table, "advise", self._flag),
            severity=self._optional(table, "severity", self._severities) or {},
            ignore=self._optional(table, "ignore", self._ignores) or (),
            baseline=self._optional(table, "baseline", self._path),
            stall_timeout=self._optional(table, "stall-timeout", self._seconds),
            evidence_limit=self._optional(table, "evidence-limit", self._megabytes),
        )

    def _wrong(self, text: str) -> WrongSettings:
        return WrongSettings(f"{self._shown}: {self._place} {text}")

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key.replace("_", "-"), known, n=1, cutoff=0.7)
                hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(known)}"
                raise self._wrong(f"has no {key!r}: {hint}")

    @staticmethod
    def _optional(table: Mapping[str, Any], key: str, read: Callable[[str, Any], T]) -> T | None:
        return read(key, table[key]) if key in table else None

    def _of(self, key: str, value: Any, kind: type[T], what: str) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(f"has {key} as {_kind(value)}; give {what}")
        return value

    def _flag(self, key: str, value: Any) -> bool:
        return self._of(key, value, bool, "true or false")

    def _check(self, key: str, value: Any, judged: bool = True) -> str:
        name = self._of(key, value, str, "the id of a check")
        check = check_of(name)
        if check is None:
            raise self._wrong(f"has {key} {name!r}, and {unknown(name)}")
        if judged and not has_part(check, "run"):
            raise self._wrong(
                f"has {key} {name!r}, which takes a second run to compare with: no run of a script has it"
            )
        return name

    def _checks(self, key: str, value: Any) -> tuple[str, ...]:
        items = self._of(key, value, list, 'a list of ids of checks, as in ["gradient-sync"]')
        return tuple(self._check(key, one, judged=False) for one in items)

    def _judged_checks(self, key: str, value: Any) -> tuple[str, ...]:
        found = self._checks(key, value)
        if not found:
            raise self._wrong(f"has {key} without a check; `ddpcheck checks` lists them")
        return tuple(self._check(key, one) for one in found)

    def _severities(self, key: str, value: Any) -> dict[str, Severity]:
        found: dict[str, Severity] = {}
        for check, severity in self._of(
            key, value, dict, 'a table, as in {"checkpoint-atomic-save" = "error"}'
        ).items():
            if self._check(key, check) not in every_check():
                raise self._wrong(f"has {key} of {check}, a rule; only checks have one")
            if severity == "off":
                raise self._wrong(f'has {key} of {check} as "off"; put it into skip')
            if severity not in ("error", "warning"):
                raise self._wrong(f'has {key} of {check} as {severity!r}; give "error" or "warning"')
            if check in those("stops") and severity == "warning":
                raise self._wrong(
                    f"has {key} of {check} as warning, and a program that fails or hangs has not done its work: "
                    "that stays an error"
                )
            found[check] = severity
        return found

    def _ignores(self, key: str, value: Any) -> tuple[Ignore, ...]:
        entries = self._of(key, value, list, "entries [[tool.ddpcheck.ignore]] of check, file and reason")
        return tuple(self._ignore(number, one) for number, one in enumerate(entries, 1))

    def _ignore(self, number: int, entry: Any) -> Ignore:
        self._place = f"ignore entry {number}"
        try:
            if not isinstance(entry, dict):
                raise self._wrong(f"is {_kind(entry)}; write [[tool.ddpcheck.ignore]] with check, file and reason")
            self._known(entry, _ENTRY)
            for needed in ("check", "file"):
                if needed not in entry:
                    raise self._wrong(f"has no {needed}; each entry has check, file and reason")
            check = self._check("check", entry["check"])
            self._place += f" ({check})"
            if "reason" not in entry:
                raise self._wrong("has no reason; say in a sentence why this is accepted")
            return Ignore(
                number=number,
                check=check,
                file=self._text("file", entry["file"]),
                reason=" ".join(self._text("reason", entry["reason"]).split()),
                line=self._optional(entry, "line", self._line),
                function=self._optional(entry, "function", self._text),
                subject=self._optional(entry, "subject", self._text),
            )
        finally:
            self._place = TABLE

    def _text(self, key: str, value: Any) -> str:
        text = self._of(key, value, str, "a text").strip()
        if not text:
            raise self._wrong(f"has an empty {key}" + ("; say in a sentence why" if key == "reason" else ""))
        if "\0" in text:
            raise self._wrong(f"has {key} with a character NUL, which no name has")
        return text

    def _line(self, key: str, value: Any) -> int:
        line = self._of(key, value, int, "the number of a line")
        if line < 1:
            raise self._wrong(f"has {key} {line}; lines are numbered from 1 on")
        return line

    def _path(self, key: str, value: Any) -> Path:
        return Path(os.path.dirname(self._shown), self._text(key, value))

    def _seconds(self, key: str, value: Any) -> float:
        seconds: float = self._of(key, value, (int, float), "seconds")  # type: ignore[arg-type]
        if not 0 < seconds <= sys.float_info.max:
            raise self._wrong(f"has {key} {value}; give a number of seconds above 0")
        return float(seconds)

    def _megabytes(self, key: str, value: Any) -> int:
        megabytes = self._of(key, value, int, "a whole number of megabytes")
        if megabytes <= 0:
            raise self._wrong(f"has {key} {megabytes}; give a whole number of megabytes above 0")
        return megabytes


_SETTINGS = ("checks", "skip", "strict", "advise", "severity", "ignore", "baseline", "stall-timeout", "evidence-limit")
_ENTRY = ("check", "file", "reason", "line", "function", "subject")


def _kind(value: object) -> str:
    """What a value of TOML is, as a noun."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return next((name for kind, name in names.items() if type(value) is kind), "a date or a time")
