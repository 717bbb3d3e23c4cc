"""A file of findings that were there before: only what is new counts.

An entry knows its finding by the rule, the file, the function, the text of
the line and the subject: by nothing that varies from run to run, such as line
numbers, ranks, steps and counts. One without a rule, as files of schema 1 have
them, means every rule of its check.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ddpcheck.acceptance.line_comments import LineComments, comment_of
from ddpcheck.acceptance.project_paths import in_project
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.report import report_files
from ddpcheck.vocabulary import regular_files
from ddpcheck.vocabulary.model import Finding, Severity, Struct

SCHEMA = 2

_NAME = re.compile(r"[\w.]+")
"""A parameter, a buffer or a class: its numbers say which."""


class Unreadable(Exception):
    """A file is no baseline; the text is one sentence that names it, and what is wrong."""


class Key(NamedTuple):
    """What makes a finding the same in another run."""

    check: str
    file: str
    function: str
    code: str
    subject: str
    rule: str = ""


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding that was there before."""

    check: str
    rule: str = ""
    """Empty for all rules of the check."""
    severity: Literal["error", "warning"]
    """A warning's entry accepts no error."""
    file: str
    function: str
    code: str
    """The text of the line, without a comment."""
    subject: str
    count: int
    """How many lines of that function and that text have it."""
    reason: str

    @property
    def key(self) -> Key:
        return Key(self.check, self.file, self.function, self.code, self.subject, self.rule)


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    findings: tuple[Entry, ...]


class Baseline(Struct, frozen=True, kw_only=True):
    """The entries of one file."""

    path: str
    """The file; those of entries are relative to its folder."""
    entries: tuple[Entry, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.path))

    def key_of(self, finding: Finding, folder: str, comments: LineComments) -> Key:
        """What an entry for this finding would be known by; ``folder`` is the working directory of the ranks."""
        where = finding.where
        if where is None:
            return Key(finding.check, "", "", "", _lasting(finding.subject), finding.rule)
        path = in_project(where.file, folder, self.folder)
        code = _normal(comments.text(where))
        return Key(finding.check, path, where.function, code, _lasting(finding.subject), finding.rule)

    def keys_of(self, finding: Finding, folder: str, comments: LineComments) -> tuple[Key, ...]:
        """What the entries that mean it are known by: that of its rule, and that of its whole check."""
        key = self.key_of(finding, folder, comments)
        return (key, key._replace(rule="")) if key.rule else (key,)

    def entry_for(self, key: Key, severity: Severity) -> Entry | None:
        """The entry that accepts a finding of this key and severity."""
        found = next((entry for entry in self.entries if entry.key == key), None)
        return found if found is not None and (found.severity == "error" or severity == "warning") else None


def read(path: Path) -> Baseline:
    """Read a file; raises Unreadable."""
    try:
        data = regular_files.read(path, links=True)
    except FileNotFoundError:
        raise Unreadable(f"there is no baseline {path}; --write-baseline writes it") from None
    except OSError as error:
        raise Unreadable(f"the baseline {path} cannot be read: {report_files.reason(error)}") from None
    try:
        known = msgspec.json.decode(data)
        if isinstance(known, dict) and isinstance(known.get("schema"), int) and known["schema"] > SCHEMA:
            raise Unreadable(f"the baseline {path} has schema {known['schema']}: a newer ddpcheck has written it")
        found = msgspec.json.decode(data, type=_File)
        for entry in found.findings:
            if entry.rule and (found.schema < SCHEMA or not entry.rule.startswith(f"{entry.check}/")):
                raise Unreadable(f"{path} is no baseline of ddpcheck: {entry.rule} is no rule of {entry.check}")
    except RecursionError:
        raise Unreadable(f"{path} is no baseline of ddpcheck: it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} is no baseline of ddpcheck: {_clause(error)}") from None
    return Baseline(path=str(path), entries=found.findings)


def _clause(error: Exception) -> str:
    """``findings[2].count: expected `int`, got `str```, of msgspec's words for it."""
    what, _, where = str(error).partition(" - at `$.")
    what = what[:1].lower() + what[1:]
    return f"{where.rstrip('`')}: {what}" if where else what


def write(baseline: Baseline) -> None:
    """Write the file, whole or not at all, an entry after the other in an order that stays; raises Unwritable."""
    entries: list[dict[str, Any]] = [
        msgspec.to_builtins(entry) for entry in sorted(baseline.entries, key=lambda one: one.key[1:] + one.key[:1])
    ]
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False)
    report_files.write(Path(baseline.path), text + "\n")


def entries_of(
    findings: Iterable[Finding], baseline: Baseline, folder: str, comments: LineComments
) -> tuple[Entry, ...]:
    """Entries for these findings, with the reasons that the baseline has already."""
    found = by_key((baseline.key_of(finding, folder, comments), finding) for finding in findings)
    reasons = {entry.key: entry.reason for entry in baseline.entries}
    return tuple(
        Entry(
            **key._asdict(),
            severity="error" if any(one.severity == "error" for one in same) else "warning",
            count=len(lines_of(same)),
            reason=reasons.get(key) or reasons.get(key._replace(rule=""), ""),
        )
        for key, same in found.items()
    )


def lines_of(findings: Sequence[Finding]) -> list[int]:
    """The lines of findings of one key: several on one line are one place, whatever their causes."""
    return sorted({one.where.line if one.where is not None else 0 for one in findings})


def _lasting(subject: str) -> str:
    """A subject without what another run would number or name otherwise: calls, ranks, folders and epochs of files."""
    if _NAME.fullmatch(subject):
        return subject
    kind, _, name = subject.partition(" ")
    if kind == "file" and name:
        subject = f"file {os.path.basename(name)}"
    return re.sub(r"\d+", "#", subject)


def _normal(line: str) -> str:
    """A line without its comment, and with single blanks."""
    comment = comment_of(line)
    return " ".join((line[: line.rindex(comment)] if comment else line).split())
