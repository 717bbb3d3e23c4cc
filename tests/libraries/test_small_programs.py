"""Each small program prints what it says: as long as it does, the fault is the library's, and is still there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_programs import Program, programs

from tests import progress

MODULES = {"accelerate": "accelerate", "fabric": "lightning", "lightning": "lightning"}


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.file.stem)
def test_it_prints_what_it_says(program: Program, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[program.library])
    run = progress.run(
        [sys.executable, "-W", "ignore", str(program.file)],
        cwd=tmp_path,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert program.printed, f"it prints, and does not say so:\n{run.stdout}"
    assert run.stdout.splitlines() == program.printed
