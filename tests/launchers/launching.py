"""Runs launchers under the command, on small programs with a fault and without."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.running import Ran, run

PROGRAMS = Path(__file__).parent / "programs"
SCRIPTS = Path(sys.executable).parent
FAULTS = [pytest.param("--fault", id="faulty"), pytest.param("", id="right")]


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip where a module or command is not installed; `nox -s launchers` has them all, but for those of the system."""
    missing = [one for one in names if importlib.util.find_spec(one) is None and _command(one) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def _command(name: str) -> str | None:
    return shutil.which(name, path=f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}")


def free_port() -> str:
    """A port that nobody uses now, for launchers that cannot find one."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """With this environment's commands first on PATH, as where it is activated."""
    return {"PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}", **more}


def launched(folder: Path, *command: str, fault: str, forks: object = None, **env: str) -> Ran:
    """What ``ddpcheck run`` reports of a command."""
    return run(folder, *command, *([fault] if fault else []), env=environment(**env), forks=forks)  # type: ignore[arg-type]


def plainly(*command: str, folder: Path, **env: str) -> int:
    """The exit code of a command without us."""
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment(**env)}, check=False).returncode


def holds(ran: Ran, fault: str, check: str, file: str, ranks: int = 2) -> None:
    """The fault is found, with a line of the program; its right twin is held."""
    assert ran.document is not None, ran.err
    assert ran.document["world_size"] == ranks, ran.err
    if not fault:
        assert (ran.code, ran.document["verdict"], ran.found) == (0, "held", []), ran.err
        return
    assert (ran.code, ran.document["verdict"]) == (1, "violated"), ran.err
    finding = next(one for one in ran.document["findings"] if one["check"] == check)
    assert finding["where"]["file"].endswith(file), finding
    assert Path(file).name in ran.err
