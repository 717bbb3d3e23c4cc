"""Entries of the settings that accept findings of a check or a rule by file, and if asked by line or subject."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ddpcheck.vocabulary.model import Finding, Struct


class Ignore(Struct, frozen=True, kw_only=True):
    """One entry: the findings that it means, and why they are accepted."""

    number: int
    """Its place among the entries, from 1 on."""
    check: str
    """The id of a check, or of a rule."""
    file: str
    """A path or a pattern, of the line's file or of what the finding says of files; one without a slash is held against
    the file's name as well."""
    reason: str
    line: int | None = None
    function: str | None = None
    """A name or a pattern."""
    subject: str | None = None
    """A name or a pattern."""

    def means(self, finding: Finding, path: str, written: Sequence[str] = ()) -> bool:
        """Whether it is about this finding, whose file is called so in the project; empty for one without a line.

        ``written`` are the files that the finding says something about.
        """
        where = finding.where
        return (
            self.check in (finding.check, finding.rule)
            and (self.means_file(path, where.file if where is not None else "") or self._means_all(written))
            and (self.line is None or (where is not None and where.line == self.line))
            and (self.function is None or (where is not None and _like(where.function, self.function)))
            and (self.subject is None or _like(finding.subject, self.subject))
        )

    def means_file(self, path: str, shown: str) -> bool:
        """Whether it is about this file: as the project calls it, as reports show it, or by its name alone."""
        names = {path, shown} | ({path.rpartition("/")[2]} if "/" not in self.file else set())
        return any(_like(name, self.file.removeprefix("./")) for name in names)

    def _means_all(self, written: Sequence[str]) -> bool:
        """Whether it is about these files, in whichever folder a run has put them."""
        below = f"*/{self.file.removeprefix('./')}"
        return bool(written) and all(self.means_file(one, "") or _like(one, below) for one in written)

    def means_function(self, function: str) -> bool:
        return self.function is None or _like(function, self.function)

    def __str__(self) -> str:
        more = [
            f"{key} {value}" for key in ("line", "function", "subject") if (value := getattr(self, key)) is not None
        ]
        return f"ignore entry {self.number} ({', '.join([f'{self.check} in {self.file}', *more])})"


def _like(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
