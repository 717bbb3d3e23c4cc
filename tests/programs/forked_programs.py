"""Programs of fixtures in forks of one process, each in a folder of its own: tenths of a second, not seconds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running() -> Iterator[Callable[[Path], dict[str, Any]]]:
    """A function that runs a program in two ranks, and returns what ``ddpcheck run --json`` would write of it."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def run(program: Path) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{program}\n")
        process.stdin.flush()
        document: dict[str, Any] = json.loads(process.stdout.readline())
        from tests.report.schema_validation import validate  # not for the process that imports this file as its own

        validate(document, "run")
        return document

    yield run
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)


def serve() -> None:
    """Answer each path on standard input with a line of JSON."""
    from ddpcheck.probes import all_probes
    from ddpcheck.report.json_report import document
    from tests.corpus import forked

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    all_probes.patch()
    for line in sys.stdin:
        program = Path(line.strip())
        with tempfile.TemporaryDirectory(prefix="ddpcheck-program-") as folder:
            shutil.copy(program, folder)
            os.chdir(folder)  # some write files where they are
            ran = forked.run(Path(program.name))
            os.chdir(ROOT)
        assert ran.verdict is not None
        answers.write(json.dumps({**document(ran.verdict), "internal": ran.defects}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
