"""One pytest session over the soak run's project, with a bar that shows how far it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import project
import traces
import watching
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ENOUGH_PER_TEST = 3.0
"""Seconds per test after which the session is taken to hang."""


@dataclass
class Told:
    """What a session has told about its tests, by their numbers."""

    exit_code: int | None = None
    """None: it did not end."""
    seconds: float = 0.0
    outcomes: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    warnings: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    durations: dict[int, float] = field(default_factory=dict)
    left: dict[int, list[str]] = field(default_factory=dict)
    holdings: list[dict[str, Any]] = field(default_factory=list)


def run(folder: Path, tests: int, mark: str, workers: int, console: Console) -> Told:
    """Run the project in ``folder`` and return what the session told."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=long", "--junit-xml=junit.xml", "--ddp-report=ddp.json"]
    if workers:
        command += ["-n", str(workers)]
    events = folder / "events.jsonl"
    events.touch()
    environment = traces.environment(mark, folder / "tmp") | {watching.EVENTS: str(events)}
    told = Told()
    begun = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _follow(process, events, tests, told, begun + 60 + ENOUGH_PER_TEST * tests, console)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    told.seconds = time.monotonic() - begun
    _read_junit(folder / "junit.xml", told)
    return told


def _follow(
    process: subprocess.Popen[bytes], events: Path, tests: int, told: Told, end: float, console: Console
) -> None:
    columns = (
        TextColumn("soak"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with Progress(*columns, console=console) as progress, events.open() as lines:
        task = progress.add_task("tests", total=tests, counts="")
        while time.monotonic() < end:
            told.exit_code = process.poll()  # before what it has written last is read
            for event in _new(lines):
                _hear(event, told, counts)
            shown = ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
            progress.update(task, completed=len(told.durations), counts=shown)
            if told.exit_code is not None:
                return
            time.sleep(0.2)


def _new(lines: Any) -> Iterator[dict[str, Any]]:
    while line := lines.readline():
        yield json.loads(line)


def _hear(event: dict[str, Any], told: Told, counts: dict[str, int]) -> None:
    if "report" in event:
        counts[event["outcome"]] += 1
    elif "ended" in event:
        number = project.number_of(event["ended"])
        told.durations[number] = event["seconds"]
        if event["left"]:
            told.left[number] = event["left"]
    elif "warning" in event:
        if event["of"].endswith("]"):
            told.warnings[project.number_of(event["of"])].append(event["warning"])
    else:
        told.holdings.append(event)


def _read_junit(path: Path, told: Told) -> None:
    if not path.exists():
        return
    for case in ElementTree.parse(path).iter("testcase"):
        number = project.number_of(case.get("name", ""))
        verdicts = list(case)
        told.outcomes[number] |= {_outcome(verdict) for verdict in verdicts} or {"passed"}
        for verdict in verdicts:
            told.texts[number] += f"{verdict.get('message')}\n{verdict.text}\n"


def _outcome(verdict: ElementTree.Element) -> str:
    if verdict.tag == "skipped":
        return "xfailed" if verdict.get("type") == "pytest.xfail" else "skipped"
    return {"failure": "failed"}.get(verdict.tag, verdict.tag)


def growth(holdings: Sequence[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """What pytest and the zygote held at the first look and at the last: name, and both amounts."""
    with_zygote = [h for h in holdings if "zygote" in h]
    if len(with_zygote) < 2:
        return []
    first, last = with_zygote[0], with_zygote[-1]
    return [
        ("open files of pytest", first["files"], last["files"]),
        ("MB of pytest", first["rss"] / 1e6, last["rss"] / 1e6),
        ("open files of the zygote", first["zygote"]["files"], last["zygote"]["files"]),
        ("threads of the zygote", first["zygote"]["threads"], last["zygote"]["threads"]),
        ("MB of the zygote", first["zygote"]["rss"] / 1e6, last["zygote"]["rss"] / 1e6),
    ]
