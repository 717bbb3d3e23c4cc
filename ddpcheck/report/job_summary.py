"""A verdict as Markdown, for the page that GitHub shows of a job."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpcheck.report.console import plain
from ddpcheck.report.finding_text import circumstances, further_lines, labelled
from ddpcheck.report.repository_paths import Repository, uri_path
from ddpcheck.report.source_lines import Sources
from ddpcheck.report.terminal_report import sentence
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, ranks_text

LARGEST = 1024 * 1024
"""Bytes that GitHub takes of one step's summary; it drops one that is larger, with an error."""

_MOST = 50
_LONGEST = 2000
_MARKS = {"error": ":x:", "warning": ":warning:"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
_CODE = re.compile(r"`([^`\n]+)`")


def append(verdict: Verdict, path: Path, repository: Repository, blob: str, strict: bool = False) -> None:
    """Add the report to a summary, as much of it as there is room for."""
    room = LARGEST - (path.stat().st_size if path.exists() else 0)
    for most in (_MOST, 5, 0):
        data = markdown(verdict, repository, blob, strict, most).encode("utf-8", "backslashreplace")
        if len(data) <= room:
            with path.open("ab") as opened:
                opened.write(data)
            return


def blob_url(environment: Mapping[str, str]) -> str:
    """Where GitHub shows the files of this job's commit; empty where that is not known."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    server, name, commit = (environment.get(one, "") for one in names)
    return f"{server}/{name}/blob/{commit}" if server and name and commit else ""


def markdown(verdict: Verdict, repository: Repository, blob: str, strict: bool = False, most: int = _MOST) -> str:
    """The report, with ``most`` of the findings in full."""
    return "\n".join(_Summary(verdict, repository, blob).lines(strict, most)) + "\n\n"


class _Summary:
    """What the parts of one summary share."""

    def __init__(self, verdict: Verdict, repository: Repository, blob: str) -> None:
        self.verdict, self._repository, self._blob = verdict, repository, blob
        self._sources = Sources(repository.folder, verdict.lines)

    def lines(self, strict: bool, most: int) -> Iterator[str]:
        verdict = self.verdict
        yield f"## ddpcheck: {verdict.verdict.replace('-', ' ')}"
        yield ""
        yield _escaped(sentence(verdict, strict))
        if verdict.missing:
            yield f"The evidence of {ranks_text(verdict.missing)} is missing."
        if verdict.parallelism:
            yield ""
            yield f"**Parallelism seen:** {_escaped(verdict.parallelism)}"
        for number, finding in enumerate(verdict.findings[:most], 1):
            yield ""
            yield from self._finding(number, finding)
        if len(verdict.findings) > most:
            yield ""
            yield f"And {count(len(verdict.findings) - most, 'more finding')}: see the log of this step."
        for text in verdict.internal:
            yield ""
            yield f"**ddpcheck itself failed:** {_escaped(text)}"
            yield "This is a defect of ddpcheck, not of the program; please report it."
        yield ""
        yield from self._checks()
        if verdict.notes:
            yield ""
            yield from (f"- {_said(note)}" for note in verdict.notes)

    def _finding(self, number: int, finding: Finding) -> Iterator[str]:
        about = f"{finding.subject}{circumstances(finding, self.verdict.world_size)}"
        yield f"### {number}. {_MARKS[finding.severity]} {_code(finding.name)} {_escaped(about)}"
        yield ""
        if finding.where is not None:
            yield self._place(finding.where)
            yield ""
            excerpt = self._sources.excerpt(finding.where)
            if excerpt:
                yield from _fenced([f"{'>' if one.marked else ' '} {one.number} | {one.text}" for one in excerpt])
                yield ""
        for label, text in labelled(finding):
            yield f"- **{label}:** {_said(text)}"
        for where, ranks in further_lines(finding).items():
            yield f"- **see also:** {self._place(where)} ({ranks_text(ranks)})"
        if finding.also:
            yield f"- **breaks:** {', '.join(map(_code, finding.also))} as well, as a consequence"

    def _place(self, where: CallSite) -> str:
        path = self._repository.path_of(where.file)
        if path is None or not self._blob:
            return _escaped(str(where))
        target = f"{self._blob}/{uri_path(path)}#L{where.line}"
        return f"[{_escaped(f'{path}:{where.line}')}]({target}) in {_escaped(where.function)}"

    def _checks(self) -> Iterator[str]:
        results = self.verdict.checks
        statuses = [result.status for result in results.values()]
        counted = ", ".join(f"{statuses.count(s)} {s.replace('-', ' ')}" for s in dict.fromkeys(statuses))
        yield f"<details><summary>{count(len(results), 'check')}: {counted}</summary>"
        yield ""
        yield "| check | status | compared | |"
        yield "|---|---|---:|---|"
        for check, result in results.items():
            why = _escaped(result.skipped_because or "")
            compared = result.coverage if result.checked else ""
            yield f"| {_code(check)} | {result.status.replace('-', ' ')} | {compared} | {why} |"
        yield ""
        yield "</details>"


def _said(text: str) -> str:
    """A sentence of ours, in which code stands between backquotes; what else is in it is the user's."""
    parts = _CODE.split(_line(text))  # every second one is code
    return "".join(_code(part) if number % 2 else _without_markup(part) for number, part in enumerate(parts))


def _code(text: str) -> str:
    """As code, in a table too."""
    return f"<code>{html.escape(_line(text)).translate(_ENTITIES)}</code>"


def _escaped(text: str) -> str:
    """A text of the user's, in one line, that Markdown and HTML leave as it is."""
    return _without_markup(_line(text))


def _without_markup(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", html.escape(text, quote=False)).translate(_CALLS)


_CALLS = {ord(character): f"&#{ord(character)};" for character in "$@"}
_ENTITIES = {ord(character): f"&#{ord(character)};" for character in "`*_[]|~$@\\"}


def _line(text: str) -> str:
    text = " ".join(plain(text).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _fenced(lines: list[str]) -> Iterator[str]:
    """Code between fences that are longer than any in it."""
    lines = [plain(line)[:_LONGEST].replace("\n", " ") for line in lines]
    longest = max((len(found) for line in lines for found in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)
