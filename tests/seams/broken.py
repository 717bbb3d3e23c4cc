"""Runs programs under a torch that lacks one seam: in forks of one process, each of which renames it first.

A request is a line of JSON: the ``seam``; and a ``path`` with its
``arguments``, or none, where the probes are only to be put in place.
``python -m tests.seams.broken SEAM SCRIPT …`` shows what comes of one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpcheck import seams
from ddpcheck.evidence import Defect
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes import all_probes
from ddpcheck.verdict import missing_evidence
from tests.corpus import forked
from tests.seams import renaming


def in_a_fork(body: Callable[[], Any]) -> Any:
    """What it returns, of a fork of this process."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = json.dumps(body())
        except BaseException:
            answer = json.dumps({"raised": traceback.format_exc()})
        with open(write, "w") as told:
            told.write(answer)
        getattr(os._exit, "__wrapped__", os._exit)(0)
    os.close(write)
    with open(read) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"raised": "it died"}


def watched(seam: str) -> dict[str, Any]:
    """What is noted as missing, and what went wrong, when the probes are put in place; and what can be renamed."""
    renamable = {one.name: renaming.can_be(one) for one in seams.SEAMS if one.is_there}
    _rename(seam)
    with tempfile.TemporaryDirectory(prefix="ddpcheck-seams-") as folder:
        all_probes.start(Path(folder), 1 << 20)
        found = Folder(Path(folder))
        found.read()
        processes = list(found.processes.values())
        return {
            "missing": list(missing_evidence.missing(processes)),
            "defects": [d.text for p in processes for d in p.of(Defect)],
            "renamable": renamable,
        }


def ran(seam: str, path: str, arguments: list[str], ranks: int, env: dict[str, str]) -> dict[str, Any]:
    """What comes of a program."""
    _rename(seam)
    run = forked.run(Path(path), *arguments, ranks=ranks, env=env)
    verdict = run.verdict
    assert verdict is not None
    return {
        **forked.told(run),
        "verdict": verdict.verdict,
        "status": {check: result.status for check, result in verdict.checks.items()},
        "because": {check: result.skipped_because for check, result in verdict.checks.items()},
        "notes": list(verdict.notes),
    }


def _rename(seam: str) -> None:
    if seam:
        renaming.rename(seams.BY_NAME[seam])


def answer(seam: str, path: str = "", arguments: list[str] | None = None, ranks: int = 2,
           env: dict[str, str] | None = None) -> Any:  # fmt: skip
    """The answer to one request."""
    return in_a_fork(lambda: ran(seam, path, arguments or [], ranks, env or {}) if path else watched(seam))


def prepare() -> None:
    """Import what probes are in and around, and put none in place."""
    import importlib

    for name in all_probes.PROBES:
        importlib.import_module(f"ddpcheck.probes.{name}")
    seams.import_homes()
    renaming.functions()


def serve() -> None:
    """Answer each request on standard input with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare()
    for line in sys.stdin:
        answers.write(json.dumps(answer(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        prepare()
        print(json.dumps(answer(sys.argv[1], *sys.argv[2:3], arguments=sys.argv[3:]), indent=1))
    else:
        serve()
