"""From the first wrong step of a program to its finding on the terminal: each fault of the corpus, under the command.

``python -m tests.corpus.promptness [NAME …]`` prints seconds for each, and the median. What is wrong from a moment on
is known from the evidence, judged as it was at ever earlier moments; when it was printed, from stderr.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Moment, Process
from ddpcheck.verdict.interruption import Interruption, until
from ddpcheck.verdict.judges import judge_world
from tests import progress
from tests.command.forks import forking
from tests.corpus.programs import Program, programs


def found_at(processes: list[Process], checks: list[str]) -> float | None:
    """The first moment at which the evidence shows the fault; None where only the end of the run does."""
    moments = sorted({record.at for process in processes for record in process.records})

    def shows(place: int) -> bool:
        now = Moment(at=moments[place] + 1e-6, host=socket.gethostname())
        cut = until(processes, Interruption(signal=15, moment=now))
        return any(said.findings for world in worlds(cut, now) for c, said in judge_world(world).items() if c in checks)

    first, last = 0, len(moments) - 1
    if not moments or not shows(last):
        return None
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if shows(middle) else (middle + 1, last)
    return moments[first]


def seconds(program: Program, forks) -> tuple[float, bool] | None:
    """From the fault to its finding, and whether the run still went on; None where it was not found."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        errors = folder / "errors"
        errors.touch()
        arguments = ["run", "--standalone", "--nproc-per-node", str(program.nproc), "--evidence", str(folder / "kept")]
        environment = {**os.environ, **program.env, "OMP_NUM_THREADS": "1"}
        process = forks.start([*arguments, str(program.path), "--fault"], folder, environment, errors)
        printed: list[tuple[float, bool]] = []

        def watch() -> None:
            last = False
            while not printed and not last:
                last = over.is_set()  # one look more, when all has been printed
                text = errors.read_text(errors="replace")
                lines = [line for line in text.splitlines() if any(f"  {check}  " in line for check in program.checks)]
                if any(word in line for line in lines for word in (". error", ". warning")):
                    printed.append((time.monotonic(), "ddpcheck ─" not in text.replace("ddpcheck,", "")))
                over.wait(0.02)

        over = threading.Event()
        watching = threading.Thread(target=watch)
        watching.start()
        progress.communicate(process)
        over.set()
        watching.join()
        evidence = Folder(folder / "kept")
        evidence.read()
        if not printed:
            return None
        at, live = printed[0]
        processes = list(evidence.processes.values())
        began = found_at(processes, program.checks)
        last = max(record.at for process in processes for record in process.records)
        return max(0.0, at - (began if began is not None else last)), live


def main() -> int:
    wanted = [p for p in programs(*sys.argv[1:]) if p.faulty and p.forkable]
    taken = []
    with forking() as forks:
        for program in wanted:
            found = seconds(program, forks)
            print(f"{program.name:40} {'not found' if found is None else f'{found[0]:6.2f} s'}", end="  ")
            print("" if found is None else "while it ran" if found[1] else "at its end", flush=True)
            taken += [found[0]] if found is not None else []
    taken.sort()
    print(
        f"{len(taken)} of {len(wanted)} faults: {statistics.median(taken):.2f} s in the median, "
        f"{taken[int(0.9 * len(taken))]:.2f} s in nine of ten, {taken[-1]:.2f} s at the most"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
