"""Runs the tests that need a GPU, and keeps what there is to know of the run in one file, to be sent.

    python -m tests.gpu.record [arguments for pytest]

The facts about the machine come first, and everything goes to the disk as it comes: a machine that dies leaves the
folder ``ddpcheck-gpu-DATE``. At the end it is packed, and a page about the run is put beside docs/gpu/README.md. A run
without a GPU leaves no page.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.gpu import bundle, facts, parts
from tests.gpu.failed_tests import RUNNING, begun, logging_variables

ROOT = facts.ROOT
FOLDER = ROOT / "docs" / "gpu"

COMMAND = [sys.executable, "-m", "pytest", "-m", "gpu", "--ddp-require-gpus", "1", "tests/gpu", "tests/claims"]
WHOLE = 4 * 3600.0
"""Seconds for all tests."""
SILENCE = 900.0
"""Seconds without a line, of which each test prints one: longer than the longest limit that a test has."""
STACKS = ["-v", "-o", "faulthandler_timeout=600"]

PYTEST = "pytest.txt"
INTERNAL_ERROR = 3
"""pytest's own exit code where it failed itself."""

T = TypeVar("T")


class Part(NamedTuple):
    """What one program prints, and how long it may take."""

    name: str
    command: list[str]
    limit: float = 60.0


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"tests.gpu.{name}"]


BEFORE = (
    Part("variables.txt", _module("variables")),
    Part("driver.txt", ["nvidia-smi"]),
    Part("topology.txt", ["nvidia-smi", "topo", "-m"]),
    Part("driver-in-full.txt", ["nvidia-smi", "-q"]),
    Part("libraries.txt", _module("loaded_libraries"), 180.0),
    Part("torch.txt", [sys.executable, "-m", "torch.utils.collect_env"], 180.0),
    Part("doctor.txt", [sys.executable, "-m", "ddpcheck.cli", "doctor"], 300.0),
    Part("stages.jsonl", _module("stages"), 900.0),
)
AFTER = (
    Part("figures.jsonl", _module("figures"), 1800.0),
    Part("memory-afterwards.txt", ["nvidia-smi"]),
)


def main(arguments: Sequence[str]) -> int:
    """Run, print as it goes, and keep it; pytest's exit code."""
    folder = bundle.begin(Path.cwd())
    code: int | None = None
    try:
        print(f"what this run finds goes to {folder}", flush=True)
        found = _tried(folder, "facts.json", facts.gather)
        if found is not None:
            (folder / "facts.json").write_text(json.dumps(found._asdict(), indent=1) + "\n")
        for part in BEFORE:
            parts.gather(folder, part.name, part.command, part.limit, ROOT)
        code = _tests(folder, arguments)
        for part in AFTER:
            parts.gather(folder, part.name, part.command, part.limit, ROOT)
        _tried(folder, "page", lambda: _page(folder, found, arguments, code))
    finally:
        packed = bundle.pack(folder)
        print(f"kept in {packed.name}: docs/gpu/README.md says what is in it, and where to send it", flush=True)
    return 1 if code is None else code


def _tests(folder: Path, arguments: Sequence[str]) -> int | None:
    """Run all tests; where one takes pytest with it, or hangs, the others are run without it. None, if that was so."""
    end = time.monotonic() + WHOLE
    environment = {**os.environ, **logging_variables(folder)}
    ended_early = False
    while True:
        before = begun(folder)
        (folder / RUNNING).mkdir(exist_ok=True)
        command = [*COMMAND, *STACKS, *arguments, *(f"--deselect={one}" for one in before)]
        limit = end - time.monotonic()
        code = parts.gather(folder, PYTEST, command, limit, ROOT, environment, show=True, silence=SILENCE)
        if code is not None and 0 <= code != INTERNAL_ERROR:
            return None if ended_early else code
        ended_early = True
        bundle.put_unfinished_aside(folder)
        now = begun(folder)
        if now == before or time.monotonic() > end:
            return None
        print(f"pytest did not end by itself, in {now[-1]}: it goes on with the tests after that", flush=True)


def _page(folder: Path, found: facts.Facts | None, arguments: Sequence[str], code: int | None) -> None:
    if found is None or not found.gpus:
        print("torch sees no GPU here, so there is no page")
        return
    path = FOLDER / facts.file_name(found)
    output = (folder / PYTEST).read_text()
    path.write_text(facts.page(found, [*COMMAND[3:], *arguments], output, code))
    (folder / "page.md").write_text(path.read_text())
    print(f"a page about it is in {path.relative_to(ROOT)}")


def _tried(folder: Path, name: str, task: Callable[[], T]) -> T | None:
    """What it returns; None where it fails, which is written down, and the rest goes on."""
    try:
        return task()
    except Exception:
        parts.say(folder, name, 0.0, f"failed:\n{traceback.format_exc()}")
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
