"""Runs programs and keeps what their ranks record: in forks of one process, or by the command.

As a program of its own it answers each name of a program on standard input
with a line, once the program was run in forks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import progress
from tests.command.forks import Forks, forking
from tests.forking import STEADY
from tests.recordings import store
from tests.recordings.catalogue import ROOT, Recorded, named

STEADILY = {
    STEADY: "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",  # its caches hand memory out as it is, whatever mallopt says
}
"""The environment of programs that are recorded, from the start of the process that they are forked from."""


class Recorder:
    """Records programs that are not recorded yet."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self._server: subprocess.Popen[str] | None = None
        self._forks: Forks | None = None

    def close(self) -> None:
        """End the processes that ranks are forked from."""
        if self._server is not None:
            self._server.communicate()  # closes its standard input, which ends it
        self._held.close()

    def recording(self, program: Recorded, anew: bool = False) -> Path:
        """The folder of a program's recording, which is made first where there is none of today's, or ``anew``."""
        now = store.key(program)
        with store.alone(program.name):
            if anew or store.trouble(program.name, now):
                with store.writing(program.name, now) as evidence:
                    self._record(program, evidence)
        return store.folder(program.name)

    def named(self, name: str) -> Path:
        """The same for a program's name."""
        return self.recording(named(name))

    def _record(self, program: Recorded, evidence: Path) -> None:
        if program.by == "forks":
            self._in_forks(program, evidence)
        else:
            self._by_command(program, evidence)

    def _in_forks(self, program: Recorded, evidence: Path) -> None:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.recordings.recorder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, **STEADILY, "PYTHONPATH": str(ROOT)},
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{evidence}\t{program.name}\n")
        self._server.stdin.flush()
        if self._server.stdout.readline().strip() != "recorded":
            raise RuntimeError(f"{program.name} could not be recorded")

    def _by_command(self, program: Recorded, evidence: Path) -> None:
        environment = {**os.environ, **STEADILY, **dict(program.env)}
        environment.pop("PYTEST_CURRENT_TEST", None)
        arguments = ["run", "--evidence", str(evidence), *program.options, str(program.path)]
        if program.options:
            arguments.insert(1, "--standalone")
        if program.by == "interpreters" or any(isinstance(one, bytes) for one in program.arguments):
            environment.pop("PYTHONHASHSEED")
            with tempfile.TemporaryDirectory(prefix="ddpcheck-program-") as here:
                progress.run(
                    [sys.executable, "-m", "ddpcheck.cli", *arguments, *program.arguments],
                    cwd=here,
                    env={**environment, "SCRATCH": here, "PYTHONPATH": str(ROOT)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            return
        if self._forks is None:
            self._forks = self._held.enter_context(forking(**STEADILY))
        with tempfile.TemporaryDirectory(prefix="ddpcheck-program-") as here:
            given = [one for one in program.arguments if isinstance(one, str)]
            command = self._forks.start([*arguments, *given], Path(here), {**environment, "SCRATCH": here})
            progress.communicate(command)


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder, and afterwards nothing of it but what it has recorded."""
    recorder = Recorder()
    try:
        yield recorder
    finally:
        recorder.close()


def serve() -> None:
    """Record the programs that standard input names, each in a folder of its own."""
    from ddpcheck.probes import all_probes
    from tests.corpus import forked

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    all_probes.patch()
    for line in sys.stdin:
        evidence, _, name = line.rstrip("\n").partition("\t")
        program = named(name)
        script = program.path
        with tempfile.TemporaryDirectory(prefix="ddpcheck-program-") as here:
            os.chdir(here)  # some write files where they are
            if program.text:
                script = Path(program.path.name)
                script.write_text(program.text)
            arguments = [one for one in program.arguments if isinstance(one, str)]
            forked.record(Path(evidence), script, *arguments, ranks=program.ranks, env=dict(program.env))
            os.chdir(ROOT)
        answers.write("recorded\n")
        answers.flush()


if __name__ == "__main__":
    serve()
