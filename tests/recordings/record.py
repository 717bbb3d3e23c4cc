"""Records every program that is not recorded yet: ``nox -s record``, with names of programs for these alone."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests.recordings import assertions, devices, store, trainers
from tests.recordings.catalogue import Recorded, everything
from tests.recordings.recorder import Recorder

WORKERS = 2


def fitting(names: Sequence[str]) -> Callable[[str], bool]:
    """Whether a program is one of these names, which may be patterns; without names, every one is."""
    return lambda name: not names or any(name == one or fnmatch.fnmatchcase(name, one) for one in names)


def record(programs: Sequence[Recorded], anew: bool = False) -> list[str]:
    """Record what is not recorded yet, or with ``anew`` all of it; what could not be recorded, as sentences."""
    wanted = [one for one in programs if not one.missing and (anew or store.trouble(one.name, store.key(one)))]
    wanted.sort(key=lambda one: (one.by == "forks", one.name))  # those of the command take longest
    queue: SimpleQueue[Recorded | None] = SimpleQueue()
    for one in (*wanted, *(None,) * WORKERS):
        queue.put(one)
    failures: list[str] = []
    done = 0
    began = time.monotonic()

    def work() -> None:
        nonlocal done
        recorder = Recorder()
        try:
            while (program := queue.get()) is not None:
                try:
                    recorder.recording(program, anew)
                except Exception as error:
                    failures.append(f"{program.name}: {type(error).__name__}: {error}")
                done += 1
                if done % 50 == 0 or done == len(wanted):
                    print(f"recorded {done} of {len(wanted)}, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            recorder.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        for worker in [pool.submit(work) for _ in range(WORKERS)]:
            worker.result()
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s record --", description=__doc__)
    parser.add_argument("programs", nargs="*", help="names or patterns, such as 'corpus/b*'; recorded anew")
    parser.add_argument("--anew", action="store_true", help="also what is recorded already")
    parser.add_argument("--devices", action="store_true", help="on simulated devices instead, what can be put there")
    given = parser.parse_args()
    wanted = fitting(given.programs)
    if given.devices:
        return _ended(record(devices.programs(wanted), given.anew or bool(given.programs)))
    programs = [one for one in everything().values() if wanted(one.name)]
    tried = [one for one in trainers.tried() if wanted(one.name)]
    asserted = wanted(assertions.NAME)
    if not (programs or tried or asserted):
        parser.error(f"no program is called {given.programs[0]!r}; one is called {next(iter(everything()))!r}")
    anew = given.anew or bool(given.programs)
    failures = record(programs, anew)
    began = time.monotonic()
    failures += trainers.record(tried, WORKERS, anew)
    print(f"recorded the trainings of {len(tried)} checks of trainers, {time.monotonic() - began:.0f} s", flush=True)
    if asserted and (anew or assertions.trouble()):
        failures += assertions.record()
        print(f"recorded the assertions, {time.monotonic() - began:.0f} s", flush=True)
    return _ended(failures)


def _ended(failures: Sequence[str]) -> int:
    print("\n".join(failures) or f"all is recorded in {store.STORE}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
