"""Whether a right program that turns red is stopped: each check's twin in turn is replaced by its faulty program.

``python -m tests.recordings.red_twins`` records each alone, in a place of its own, and replays it against the matrix
as ``nox -s replay -- --check PROGRAM`` does; it exits with 1 where that finds nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.recordings.catalogue import FIXTURES, ROOT, everything


def stopped(name: str, store: str) -> bool:
    """Whether the matrix differs when a check's right program is its faulty one."""
    folder = FIXTURES / name.split("/")[1]
    twin = folder / "correct.py"
    right = twin.read_text()
    environment = {**os.environ, "DDPCHECK_RECORDINGS": store}
    try:
        twin.write_text((folder / "faulty.py").read_text())
        for command in (["tests.recordings.record", name], ["tests.recordings.replay", "--check", name]):
            ran = subprocess.run(
                [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
    finally:
        twin.write_text(right)
    return ran.returncode == 1 and f"+{name} | " in ran.stdout


def main() -> int:
    twins = [name for name in everything() if name.startswith("checks/") and name.endswith("/correct")]
    with tempfile.TemporaryDirectory(prefix="ddpcheck-twins-") as store:
        passed = [name for name in twins if not stopped(name, store)]
    print(f"{len(twins) - len(passed)} of {len(twins)} red twins were stopped")
    print("".join(f"not stopped: {name}\n" for name in passed), end="")
    return bool(passed)


if __name__ == "__main__":
    sys.exit(main())
