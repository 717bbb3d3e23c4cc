"""Sessions whose ranks are blocked, ended from outside at random moments: nothing of them may be left.

Each session is sent a signal half a second to eight seconds after its start,
while pytest starts, the zygote imports, ranks join, or ranks wait for ever.
Within five seconds pytest and every process of the run must be gone. After
SIGINT no temporary folder of ddpcheck may be left either; for SIGKILL it is told.

    python tests/soak/interrupt.py --times 20
    python tests/soak/interrupt.py --times 20 -n 2     # under pytest-xdist
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import traces
from rich.console import Console
from rich.progress import track
from rich.table import Table

WAYS = ("waits", "spins", "daemon", "imports", "fresh")
LIMIT = 5.0
"""Seconds after the signal in which everything must be gone."""
SIGNALS: dict[str, tuple[signal.Signals, ...]] = {
    "SIGINT": (signal.SIGINT,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    "SIGTERM": (signal.SIGTERM,),
    "SIGKILL": (signal.SIGKILL,),
}
INI = "[pytest]\naddopts = -p no:cacheprovider -p no:randomly\n"


class Ended(NamedTuple):
    """How one session ended."""

    name: str
    way: str
    delay: float
    seconds: float | None
    """From the last signal until nothing was left; None: longer than the limit."""
    left: list[str]
    """The processes that were left then."""
    folders: list[str]
    said: str
    """What pytest had written last."""

    @property
    def wrong(self) -> bool:
        return self.seconds is None or (self.name.startswith("SIGINT") and bool(self.folders))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Sessions with blocked ranks, ended by signals.")
    parser.add_argument("--times", type=int, default=20, help="sessions for each signal")
    parser.add_argument("--seed", type=int, default=None, help="of the moments")
    parser.add_argument("--signals", default=",".join(SIGNALS), help="with commas between them")
    parser.add_argument("--ways", default=",".join(WAYS), help="in which ranks are blocked, with commas between them")
    parser.add_argument("-n", type=int, default=0, metavar="WORKERS", help="under pytest-xdist, with so many workers")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    console = Console(width=None if sys.stdout.isatty() else 120)
    folder = _project()
    ways = options.ways.split(",")
    plan = [(name, ways[turn % len(ways)]) for turn in range(options.times) for name in options.signals.split(",")]
    endings = [
        _end_one(folder, name, way, chance.uniform(0.5, 8.0), options.n)
        for name, way in track(plan, "interrupt", console=console)
    ]
    console.print(_table(endings))
    wrong = [ending for ending in endings if ending.wrong]
    for ending in wrong:
        console.print(str(ending).replace("\\n", "\n"), style="red", markup=False, highlight=False)
    console.print(f"{len(wrong)} of {len(endings)} sessions left something", style="red" if wrong else "green")
    shutil.rmtree(folder.parent, ignore_errors=True)
    return 1 if wrong else 0


def _project() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="soak-")) / "project"
    folder.mkdir()
    here = Path(__file__).parent
    shutil.copy(here / "blocked.py", folder / "test_blocked.py")
    shutil.copy(here / "bodies_common.py", folder)
    (folder / "pytest.ini").write_text(INI)
    return folder


def _end_one(folder: Path, name: str, way: str, delay: float, workers: int) -> Ended:
    run = uuid.uuid4().hex
    temp = folder / f"tmp-{run}"
    environment = traces.environment(run, temp) | {"SOAK_WAY": way}
    command = [sys.executable, "-m", "pytest", "-q", *(["-n", str(workers)] if workers else [])]
    with (temp / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it in the background
        )
    time.sleep(delay)
    for pause, number in enumerate(SIGNALS[name]):
        time.sleep(0.3 * pause)
        process.send_signal(number)
    begun = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LIMIT)
    gone = traces.gone(run, max(0.1, begun + LIMIT - time.monotonic()))
    seconds = None if gone is None else time.monotonic() - begun
    left = traces.processes(run)
    said = (temp / "output").read_text(errors="replace")[-2000:]
    ended = Ended(name, way, delay, seconds, list(left.values()), traces.folders(temp), said)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(temp, ignore_errors=True)
    return ended


def _table(endings: Sequence[Ended]) -> Table:
    table = Table(title=f"ended from outside: gone within {LIMIT:g} s")
    for column in ("signal", "ranks"):
        table.add_column(column)
    for column in ("sessions", "left something", "slowest s", "folders left"):
        table.add_column(column, justify="right")
    for name, way in sorted({(ending.name, ending.way) for ending in endings}):
        of_kind = [ending for ending in endings if (ending.name, ending.way) == (name, way)]
        bad = sum(ending.wrong for ending in of_kind)
        slowest = max((ending.seconds for ending in of_kind if ending.seconds is not None), default=None)
        folders = sum(bool(ending.folders) for ending in of_kind)
        table.add_row(
            name,
            way,
            str(len(of_kind)),
            str(bad),
            "-" if slowest is None else f"{slowest:.2f}",
            str(folders),
            style="red" if bad else None,
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
