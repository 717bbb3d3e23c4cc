"""The lines of a program that findings name, and the folder that they are relative to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ddpcheck.evidence import Site
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.model import CallSite, Finding, ModelPart


def folder_of(processes: Iterable[Process]) -> str:
    """The working directory of a run; empty where no process has recorded one."""
    return next((p.began.folder for p in processes if p.began is not None and p.began.folder), "")


def _of_part(part: ModelPart | None) -> tuple[CallSite, ...]:
    return part.set_by.chain if part is not None and part.set_by is not None else ()


def lines_named(processes: Iterable[Process], findings: Sequence[Finding]) -> dict[str, str]:
    """The texts of the lines that findings point at."""
    processes = list(processes)
    named: dict[str, set[int]] = defaultdict(set)
    for finding in findings:
        for place in (finding.where, *finding.chain, *(p for _, p in finding.proof), *_of_part(finding.module)):
            if place is not None:
                named[place.file].add(place.line)
    known = {
        f"{site.file}:{site.line}": site.text
        for process in processes
        for site in process.of(Site)
        if site.line in named.get(site.file, ())
    }
    for place in (place for finding in findings for place in _of_part(finding.module)):
        texts = (process.text_at(place.file, place.line) for process in processes)
        if f"{place.file}:{place.line}" not in known and (text := next(filter(None, texts), "")):
            known[f"{place.file}:{place.line}"] = text  # a line that no process was seen at
    return known
