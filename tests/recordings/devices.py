"""The second column of the matrix: what is said otherwise of a program whose tensors lie on simulated devices.

``nox -s record -- --devices`` records it. Only programs that end there as they
do on the CPU are compared: others use what is not simulated, or name the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ddpcheck.checks.registry import checks
from tests.recordings import matrix, store
from tests.recordings.catalogue import DEVICE, Recorded, everything
from tests.recordings.judging import Replayed

COUNT = DEVICE.strip()
"""Whose line says how many programs the column has."""
NOT_SAID = "not said"

_OF_GPUS = ("device-placement",)
"""Checks that have nothing to look at on the CPU."""
_REFUSED = ("NotSimulated", "Expected all tensors to be on the same device")

Lines = dict[str, list[str]]
"""By the name of a program on devices: all of its lines, under its name on the CPU; none where it was not compared."""


def programs(wanted: Callable[[str], bool]) -> list[Recorded]:
    """Those that may be put there, as they are recorded there."""
    found = [one for one in everything().values() if one.by != "interpreters" and not one.missing]
    return [one.on_device() for one in found if wanted(one.name)]


def recorded(all_of_them: Sequence[Recorded]) -> list[Recorded]:
    """Those of them that there are recordings of."""
    return [one for one in all_of_them if not store.trouble(one.name, store.key(one))]


def judged(name: str) -> list[str]:
    """What is said of a program on devices, under its name on the CPU; nothing where it did not run there."""
    on_cpu = name.removesuffix(DEVICE)
    there, here = Replayed(store.folder(name)), Replayed(store.folder(on_cpu))
    if (there.exits, there.hung) != (here.exits, here.hung) or any(words in there.output for words in _REFUSED):
        return []
    return matrix.lines(on_cpu, there.verdict)


def beside(whole: matrix.Matrix, old: matrix.Matrix, told: Lines, complete: bool) -> matrix.Matrix:
    """The matrix with its second column: anew for what was judged, and else as it was."""
    first = {name: lines for name, lines in whole.items() if not is_of_devices(name)}
    found: matrix.Matrix = {}
    for name, lines in first.items():
        found[name] = lines
        there = f"{name}{DEVICE}"
        otherwise = differing(lines, told[there]) if told.get(there) else []
        if there in told:
            found |= {there: otherwise} if otherwise else {}
        elif there in old:
            found[there] = old[there]
    if complete:
        ran = sum(map(bool, told.values()))
        others = sum(map(is_of_devices, found))
        found[COUNT] = [matrix.SEPARATOR.join((COUNT, f"{ran} of {len(told)} programs", f"{others} told otherwise"))]
    elif COUNT in old:
        found[COUNT] = old[COUNT]
    return found


def is_of_devices(name: str) -> bool:
    """Whether lines of this name are of the second column."""
    return name.endswith(COUNT)


def differing(here: Iterable[str], there: Iterable[str]) -> list[str]:
    """The lines of a program on devices that it has not on the CPU, and those that it has there alone."""
    told, others = ([tuple(line.split(matrix.SEPARATOR)) for line in lines] for lines in (here, there))
    found = [line for line in others if line not in told and not _is_status(line)]
    rules = {line[1] for line in others}
    lost = [(*line[:2], NOT_SAID, *line[3:]) for line in told if line[1] not in rules]
    statuses = [line for line in others if _is_status(line)]
    same = [_without_those_of_gpus(line) for line in told if _is_status(line)]
    statuses = [line for line in statuses if _without_those_of_gpus(line) not in same or found or lost]
    return [matrix.SEPARATOR.join((f"{name}{DEVICE}", *rest)) for name, *rest in (*statuses, *sorted(found + lost))]


def _is_status(line: Sequence[str]) -> bool:
    return line[1] == matrix.STATUSES


def _without_those_of_gpus(line: Sequence[str]) -> tuple[str, ...]:
    letters = zip(sorted(checks()), line[3], strict=True)
    return (line[2], "".join("." if check in _OF_GPUS and letter == "h" else letter for check, letter in letters))
