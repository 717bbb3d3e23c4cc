"""Judges every recording, without ranks, and writes the matrix: ``nox -s replay``.

It exits with 1 where the matrix is another one than before: review the difference, and commit it with its reason.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from functools import partial

from ddpcheck.judging.world import Judged
from tests.conformance.workshop import Workshop
from tests.recordings import assertions, devices, matrix, store, trainers
from tests.recordings.catalogue import everything
from tests.recordings.judging import Replayed, Seen
from tests.recordings.record import fitting
from tests.recordings.renaming import renamed

WORKERS = 2
SHOWN = 60
"""Lines of a difference that are printed."""

Unit = tuple[str, Callable[[], list[str]]]
"""What the matrix has lines of: its name, and what makes them."""


def units(wanted: Callable[[str], bool], seen: Seen = list) -> list[Unit]:
    """Everything of a fitting name that is recorded, in the matrix' order."""
    found: list[Unit] = []
    for name, program in everything().items():
        if wanted(name) and not program.missing:
            found.append((name, partial(_of_program, name, seen)))
    workshop = Workshop(None)
    found += [(one.name, partial(_of_trainer, workshop, one)) for one in trainers.tried() if wanted(one.name)]
    if not assertions.trouble():
        found += [(told.name, partial(_of_assertion, told)) for told in assertions.kept() if wanted(told.name)]
    return found


def _of_program(name: str, seen: Seen) -> list[str]:
    return matrix.lines(name, Replayed(store.folder(name), seen).verdict)


def _of_trainer(workshop: Workshop, one: trainers.Tried) -> list[str]:
    return matrix.lines_of_check(one.name, trainers.judgement(workshop, one))


def _of_assertion(told: assertions.Told) -> list[str]:
    return matrix.lines_of_check(told.name, Judged(check=told.check, checked=1, findings=assertions.judged(told)))


_UNITS: list[Unit] = []
"""What the processes of a pool judge, which are forks of this one."""


def _judged(number: int) -> list[str]:
    name, lines = _UNITS[number]
    try:
        return lines()
    except Exception as error:
        return matrix.lines_of_failure(name, error)


def judge_all(wanted: list[Unit]) -> matrix.Matrix:
    """The lines of all of these, judged side by side."""
    _UNITS[:] = wanted
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        lines = pool.map(_judged, range(len(wanted)), chunksize=4)
    return {name: of_one for (name, _), of_one in zip(wanted, lines, strict=True)}


def not_recorded(wanted: Callable[[str], bool]) -> list[str]:
    """Why what is wanted cannot be judged, as sentences."""
    programs = [one for one in everything().values() if wanted(one.name) and not one.missing]
    told = {one.name: store.trouble(one.name, store.key(one)) for one in programs}
    told |= {f"trainers/{one.trainer}": "" for one in trainers.tried() if wanted(one.name)}
    trainings = store.key_of_trainings()
    told |= {name: store.trouble(name, trainings) for name in told if name.startswith("trainers/")}
    if wanted(assertions.NAME) or any(
        name.startswith(f"{assertions.NAME}/") and wanted(name) for name in matrix.read()
    ):
        told[assertions.NAME] = assertions.trouble()
    return [f"{name} {why}" for name, why in told.items() if why]


def left_out() -> list[str]:
    """The programs that this torch cannot import, as sentences."""
    return [
        f"left out: {one.name}: this torch has no {', '.join(missing)}"
        for one in everything().values()
        if (missing := one.missing)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s replay --", description=__doc__)
    parser.add_argument("programs", nargs="*", help="names or patterns, such as 'corpus/b*'")
    parser.add_argument("--check", action="store_true", help="leave the file as it is")
    parser.add_argument("--renamed", action="store_true", help="compare with what is said under other names")
    given = parser.parse_args()
    wanted = fitting(given.programs)
    print("".join(f"{line}\n" for line in left_out()), end="")
    if wrong := not_recorded(wanted):
        print(f"{wrong[0]}{f' (and {len(wrong) - 1} more)' if wrong[1:] else ''}: run nox -s record")
        return 1
    found = units(wanted)
    if not found:
        print(f"no program is called {' or '.join(given.programs)}")
        return 1
    if given.renamed:
        return compare_renamed(wanted)
    began = time.monotonic()
    new = judge_all(found)
    print(f"{len(new)} programs judged in {time.monotonic() - began:.0f} s")
    old = matrix.read()
    on_devices = devices.programs(wanted)
    there = devices.recorded(on_devices)
    told = judge_all([(one.name, partial(devices.judged, one.name)) for one in there])
    if left := len(on_devices) - len(there):
        print(f"left out: the second column of {left} programs, which are not recorded on devices")
    whole = {**old, **new} if given.programs else new
    whole = devices.beside(whole, old, told, complete=not (left or given.programs))
    changes = matrix.differences(old, whole)
    print("\n".join(changes[:SHOWN]))
    if len(changes) > SHOWN:
        print(f"and {len(changes) - SHOWN} more lines")
    summary(whole)
    if changes and not given.check:
        matrix.MATRIX.write_text(matrix.written(whole))
    print(f"{len(changes)} lines of the matrix differ" if changes else "the matrix is as it was")
    return bool(changes)


def compare_renamed(wanted: Callable[[str], bool]) -> int:
    """Whether errors and warnings are the same where every name is another one, and no source text is known."""

    def runs(name: str) -> bool:
        return wanted(name) and name in everything()

    told = judge_all(units(runs))
    others = judge_all(units(runs, renamed))
    if not told:
        print("no program of that name is a run whose evidence could be renamed")
        return 1
    differing = [name for name in told if matrix.severities(told[name]) != matrix.severities(others[name])]
    for name in differing:
        before, after = matrix.severities(told[name]), matrix.severities(others[name])
        for rule, severity in sorted(before ^ after):
            print(
                f"{name}: {rule} ({severity}) is found {'as it is alone' if (rule, severity) in before else 'renamed'}"
            )
    print(f"{len(told)} programs judged under other names: {len(differing)} are told otherwise")
    return bool(differing)


def summary(whole: matrix.Matrix) -> None:
    """How many programs reach each rule."""
    counts = matrix.reached(whole)
    rules = matrix.rules()
    never = [rule for rule in rules if not counts[rule]]
    once = [rule for rule in rules if counts[rule] == 1]
    print(f"{len(rules)} rules: {len(never)} fire on no program, {len(once)} on one")
    for rule in never:
        print(f"  no program: {rule}")
    if named := sorted(set(counts) - {*rules}):
        print(f"  without a rule: {', '.join(named)}")


if __name__ == "__main__":
    sys.exit(main())
