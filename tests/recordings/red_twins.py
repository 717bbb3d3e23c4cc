"""Whether a right program that turns red is stopped: each check's twin in turn is replaced by its faulty program.

``python -m tests.recordings.red_twins`` records each alone, in a copy of the repository, and replays it against the
matrix as ``nox -s replay -- --check PROGRAM`` does; it exits with 1 where that finds nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.recordings.catalogue import FIXTURES, ROOT, everything

COPIED = ("ddpcheck", "tests", "fixtures")


def stopped(name: str, copy: Path) -> bool:
    """Whether the matrix differs when a check's right program is its faulty one."""
    folder = copy / FIXTURES.relative_to(ROOT) / name.split("/")[1]
    twin = folder / "correct.py"
    right = twin.read_text()
    twin.write_text((folder / "faulty.py").read_text())
    environment = {**os.environ, "DDPCHECK_RECORDINGS": str(copy / "recordings"), "PYTHONPATH": str(copy)}
    for command in (["tests.recordings.record", name], ["tests.recordings.replay", "--check", name]):
        ran = subprocess.run(
            [sys.executable, "-m", *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
    twin.write_text(right)
    return ran.returncode == 1 and f"+{name} | " in ran.stdout


def main() -> int:
    twins = [name for name in everything() if name.startswith("checks/") and name.endswith("/correct")]
    with tempfile.TemporaryDirectory(prefix="ddpcheck-twins-") as copy:
        for part in COPIED:
            shutil.copytree(ROOT / part, Path(copy, part))
        passed = [name for name in twins if not stopped(name, Path(copy))]
    print(f"{len(twins) - len(passed)} of {len(twins)} red twins were stopped")
    print("".join(f"not stopped: {name}\n" for name in passed), end="")
    return bool(passed)


if __name__ == "__main__":
    sys.exit(main())
