"""One process for many programs, which forks their ranks from itself, and is asked for one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@contextmanager
def asking() -> Iterator[Callable[..., str]]:
    """A function that sends a request to the process, and returns its answer, a line of JSON: see ``rows.serve``."""
    folder = tempfile.TemporaryDirectory(prefix="programs-")  # some write files where they are
    process = subprocess.Popen(
        [sys.executable, HERE / "rows.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder.name,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(path: Path, *arguments: str, ranks: int = 2) -> str:
        request = {"path": str(path), "arguments": arguments, "ranks": ranks}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return process.stdout.readline()

    yield ask
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)
    folder.cleanup()
