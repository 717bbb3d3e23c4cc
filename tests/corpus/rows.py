"""One program of the corpus, run with its fault and without, and what came of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from programs import Program

from ddpcheck.vocabulary.model import CallSite, Finding
from tests import progress
from tests.report.schema_validation import validate

COMMAND = [sys.executable, "-m", "ddpcheck.cli", "run"]


class Row(msgspec.Struct, kw_only=True):
    """What came of one program."""

    name: str
    found: list[Finding] = []
    """With the fault."""
    alarms: list[Finding] = []
    """On the correct twin."""
    notes: list[str] = []
    """What went otherwise than the program says of itself."""
    seconds: float = 0.0


def fitting(program: Program, row: Row) -> Finding | None:
    """The finding under a fitting check id; what is said of the correct twin as well is none."""
    said = {(alarm.check, alarm.severity) for alarm in row.alarms}
    return next((f for f in row.found if f.check in program.checks and (f.check, f.severity) not in said), None)


def site(program: Program, row: Row) -> str:
    """Where the fitting finding points: the ``fault``, its ``proof``, or ``no`` line of these."""
    finding = fitting(program, row)
    if finding is None or finding.where is None or Path(finding.where.file).name != program.path.name:
        return "no"
    return program.lines.get(finding.where.line, "no")


def by_recordings(program: Program, recording: Callable[[str], Path]) -> Row:
    """What its recordings show, with its fault and without; ``recording`` is given their names."""
    from tests.recordings.judging import Replayed

    row = Row(name=program.name)
    correct = Replayed(recording(f"corpus/{program.name}"))
    row.alarms = list(correct.verdict.findings)
    row.notes = [f"a defect: {text}" for text in correct.verdict.internal]
    if any(correct.exits.values()) or correct.hung:
        row.notes.append(f"the twin ended with {correct.exits}: {correct.output.strip()[-300:]}")
    row.seconds = correct.seconds
    if program.faulty:
        ran = Replayed(recording(f"corpus/{program.name} --fault"))
        row.found = list(ran.verdict.findings)
        row.seconds += ran.seconds
        row.notes += [f"a defect: {text}" for text in ran.verdict.internal]
        if ran.hung and not ran.certain:
            row.notes.append("the hang was not certain")
        if (program.ends == "hangs") != ran.hung:
            row.notes.append(f"should end as {program.ends}, and ended with {ran.exits}, hung {ran.hung}")
    return row


def by_command(program: Program) -> Row:
    """Run it under ``ddpcheck run``, in interpreters."""
    began = time.monotonic()
    row = Row(name=program.name)
    _, row.alarms, code = _command(program)
    if code != 0:
        row.notes.append(f"the twin ended with {code}")
    if program.faulty:
        verdict, row.found, _ = _command(program, "--fault")
        expected = {"finishes": ("violated", "held"), "fails": ("failed", "hung"), "hangs": ("hung", "failed")}
        if verdict not in expected[program.ends]:
            row.notes.append(f"should end as {program.ends}, and the verdict is {verdict}")
    row.seconds = time.monotonic() - began
    return row


def _command(program: Program, *arguments: str) -> tuple[str, list[Finding], int]:
    base = Path(tempfile.mkdtemp(prefix="ddpcheck-corpus-"))
    try:
        env = {**os.environ, **program.env, "SCRATCH": str(base), "OMP_NUM_THREADS": "1"}
        env.pop("PYTHONHASHSEED", None)
        nodes = [
            subprocess.Popen(
                [
                    *COMMAND,
                    *options,
                    "--json",
                    base / name,
                    program.path,
                    *arguments,
                ],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for name, options in _nodes(program)
        ]
        try:
            output = [progress.communicate(node)[0] for node in nodes]
        finally:
            for node in nodes:
                node.kill()  # nothing, to one that has ended
        if not (base / "verdict.json").exists():
            raise AssertionError(f"the command wrote no verdict:\n{output}")
        document = json.loads((base / "verdict.json").read_text())
        validate(document, "run")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    findings = [
        Finding(
            check=f["check"],
            severity=f["severity"],
            ranks=tuple(f["ranks"]),
            subject=f["subject"],
            expected=f["expected"],
            found=f["found"],
            advice=f["advice"],
            step=f["step"],
            where=CallSite(**f["where"]) if f["where"] else None,
            count=f["count"],
        )
        for f in document["findings"]
    ]
    return document["verdict"], findings, nodes[0].returncode


def _nodes(program: Program) -> list[tuple[str, list[str]]]:
    """The name of the verdict and the options of each node: one node, but where a program is about LOCAL_RANK."""
    if program.launch == "spawn":
        return [("verdict.json", [])]
    if "LOCAL_RANK" not in program.env:
        return [("verdict.json", ["--standalone", "--nproc-per-node", str(program.nproc)])]
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    meeting = ["--nnodes", str(program.nproc), "--nproc-per-node", "1", "--master-addr", "localhost"]
    return [
        ("verdict.json" if node == 0 else f"verdict{node}.json",
         [*meeting, "--master-port", str(port), "--node-rank", str(node)])
        for node in range(program.nproc)
    ]  # fmt: skip


def serve() -> None:
    """Answer each request on standard input with a line of JSON: one process forks the ranks of all.

    A request names a ``path``, its ``arguments`` and how many ``ranks``.
    """
    import forked

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    forked.all_probes.patch()
    for line in sys.stdin:
        request = json.loads(line)
        ran = forked.run(Path(request["path"]), *request["arguments"], ranks=request["ranks"])
        answers.write(json.dumps(forked.told(ran)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
