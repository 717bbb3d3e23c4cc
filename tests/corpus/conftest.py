"""One process for all programs, which forks their ranks from itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ask():
    """Send a request to the process, and get its answer: see ``rows.serve``."""
    process = subprocess.Popen(
        [sys.executable, HERE / "rows.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )

    def request(path, *arguments, both=False):
        process.stdin.write(json.dumps({"path": str(path), "arguments": arguments, "both": both}) + "\n")
        process.stdin.flush()
        return process.stdout.readline()

    yield request
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)
