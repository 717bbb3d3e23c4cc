"""An examination as text: what there is, what that allows, and how the self-tests ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddpcheck.doctor.advice import gist
from ddpcheck.doctor.facts import BACKENDS, Examination, Limit, Machine, Seam, SelfTest, Torch, Unknown
from ddpcheck.gpus.allotment import SHARING_NCCL, SHARING_TORCH, SHARING_VARIABLE, version_text
from ddpcheck.report.console import across, console_on, plain
from ddpcheck.seams import RUNTIME, SEEN
from ddpcheck.vocabulary.wording import count

FEW_FILES = 1024
SMALL_SHARED_MEMORY = 64 << 20
"""What a container has that was given no size: too little for workers of a DataLoader, and for NCCL."""

LITTLE_MEMORY = 1 << 30

_MARKS = {"passed": ("PASS", "bold green"), "failed": ("FAIL", "bold red"), "untestable": ("  --", "dim")}


class Row(NamedTuple):
    """One fact, and what is to be said about it."""

    label: str
    text: str
    kind: Literal["fact", "unknown", "concern"] = "fact"


class Section(NamedTuple):
    title: str
    rows: list[Row]


def sections(examination: Examination, seams: bool = False) -> list[Section]:
    """All facts, in the order in which they are shown; with ``seams``, each of those."""
    found = [
        Section("machine", list(_machine(examination.machine, examination.stack.ranks_start))),
        Section("torch", list(_torch(examination.torch))),
    ]
    if seams and not isinstance(examination.torch.seams, Unknown):
        found.append(Section("seams", list(_listed(examination.torch.seams))))
    return found


def outcome_of(test: SelfTest, torch: Torch) -> str:
    """What is shown beside PASS, FAIL or neither."""
    if test.outcome == "passed":
        return f"a DDP step in 2 ranks equals one process's ({test.seconds:.2f} s)"
    if test.outcome == "untestable":
        if test.device == "cuda" and torch.gpus == ():
            return "not testable here: no GPU"
        # The mark that the text begins with is of no use to who did not write it.
        _, title, reason = test.text.partition(") ") if test.text.startswith("@") else ("", "", "")
        return f"not testable here: it {reason}" if title else f"not testable here: {test.text}"
    return gist(test.text)


def verdict(examination: Examination) -> str:
    """The last line."""
    tests = examination.stack.tests
    failed = [test.name for test in tests if test.outcome == "failed"]
    passed = [test.name for test in tests if test.outcome == "passed"]
    seconds = f"in {examination.stack.seconds:.1f} s"
    if failed:
        return f"UNHEALTHY  {count(len(failed), 'self-test')} of {len(tests)} failed {seconds}: {', '.join(failed)}."
    if not passed:
        return f"UNHEALTHY  no self-test could be run {seconds}."
    works = "works" if len(passed) == 1 else "work"
    return f"HEALTHY  {' and '.join(passed)} {works} here; self-test {seconds}."


# --- the facts


def _machine(machine: Machine, ranks_start: str | Unknown) -> Iterator[Row]:
    yield _row("system", machine.system)
    yield _row("Python", machine.python)
    cores = machine.cores
    if isinstance(cores, Limit):
        less = "" if cores.free >= cores.total else f" ({cores.free} for this process)"
        yield Row("cores", f"{cores.total}{less}")
    else:
        yield _row("cores", cores)
    yield _amount("memory", machine.memory, LITTLE_MEMORY, "little: end what else runs, or test few ranks at once")
    yield _amount(
        "shared memory",
        machine.shared_memory,
        SMALL_SHARED_MEMORY,
        "little for DataLoader workers and NCCL: docker run --shm-size=1g",
    )
    files = machine.files
    if isinstance(files, Limit):
        few = files.free < FEW_FILES
        told = f"{files.free:,} free of {files.total:,}" + ("; few: ulimit -n 4096" if few else "")
        yield Row("open files", told, "concern" if few else "fact")
    else:
        yield _row("open files", files)
    yield _row("loopback", machine.loopback)
    yield _row("ranks start", ranks_start)
    yield _packages(machine)


def _amount(label: str, limit: Limit | Unknown, least: int, concern: str) -> Row:
    if isinstance(limit, Unknown):
        return _row(label, limit)
    told = f"{_size(limit.total)}, {_size(limit.free)} free"
    if limit.free <= least:
        return Row(label, f"{told}; {concern}", "concern")
    return Row(label, told)


def _torch(torch: Torch) -> Iterator[Row]:
    build = torch.build
    if isinstance(torch.version, str) and isinstance(build, str):
        yield Row("torch", f"{torch.version} ({build})")
    else:
        yield _row("torch", torch.version)
    if isinstance(torch.version, Unknown) and torch.version == torch.gpus:
        return  # one reason for all of it
    if isinstance(torch.backends, Unknown):
        yield _row("backends", torch.backends)
    else:
        told = ", ".join(f"{b} {'yes' if b in torch.backends else 'no'}" for b in BACKENDS)
        others = [b for b in torch.backends if b not in ("gloo", "nccl")]
        untested = f" ({' and '.join(others)}: not tested, since ddp tests have gloo and nccl)" if others else ""
        yield Row("backends", told + untested)
    if torch.nccl is None:
        yield Row("NCCL", "not in this build")
    elif isinstance(torch.nccl, Unknown):
        yield _row("NCCL", torch.nccl)
    else:
        yield Row("NCCL", version_text(torch.nccl))
    gpus = torch.gpus
    if isinstance(gpus, Unknown):
        yield _row("GPUs", gpus)
        return
    for index, gpu in enumerate(gpus):
        yield Row(f"GPU {index}", ", ".join(filter(None, (gpu.name, _size(gpu.memory), gpu.uuid))))
    if gpus:
        yield _row("driver", torch.driver if torch.driver is not None else Unknown(why="no NVIDIA driver was found"))
        yield Row("ranks on a GPU", _sharing(torch.nccl))
    else:
        why = "; this build of torch would see none" if build == "CPU only" else torch.trouble and f": {torch.trouble}"
        yield Row("GPUs", f"none{why}")
    yield from _seams(torch.seams)


def _seams(seams: tuple[Seam, ...] | Unknown) -> Iterator[Row]:
    """How much of what probes rest on is there, and what is not checked for want of the rest."""
    if isinstance(seams, Unknown):
        yield _row("seams", seams)
    elif seams:
        missing = [one for one in seams if not one.there]
        told = f"{len(seams) - len(missing)} of {len(seams)} places that probes rest on"
        yield Row("seams", told, "concern" if missing else "fact")
        for one in missing:
            yield Row("", f"{one.of} has no {one.name}; not checked: {', '.join(one.rests)}", "concern")


def _listed(seams: tuple[Seam, ...]) -> Iterator[Row]:
    """Every place of another's code that something here rests on, by what is seen there, and what rests on it."""
    yield Row("seen in", "; ".join(f"{package} {versions}" for package, versions in SEEN.items()))
    for (purpose, rests), several in groupby(seams, lambda seam: (seam.purpose, seam.rests)):
        places = list(several)
        needed = f"needed by {', '.join(rests)}" if rests else "for causes alone"
        yield Row("", f"{purpose}: {needed}\n{_places([one.name for one in places])}")
        yield from (Row("missing", one.name, "concern") for one in places if not one.there)
    for purpose, runtime in groupby(RUNTIME, lambda seam: seam.sight):
        yield Row(
            "", f"{purpose.removeprefix('for ')}: needed by the pytest plugin\n{_places([one.name for one in runtime])}"
        )


def _places(names: list[str]) -> str:
    """Names by their module or class, an indented line for each: ``posixpath.exists, .isfile``."""
    homes = groupby(names, lambda name: name.rpartition(".")[0])
    return "\n".join(f"  {home}.{', .'.join(name.rpartition('.')[2] for name in its)}" for home, its in homes)


def _sharing(nccl: tuple[int, ...] | Unknown | None) -> str:
    """How many ranks may share a GPU."""
    under_gloo = "under gloo any number"
    if nccl is None:
        return under_gloo
    if isinstance(nccl, Unknown):
        return f"{under_gloo}; NCCL unknown: its version is not known"
    if nccl >= SHARING_NCCL:
        return f"{under_gloo}; under NCCL {version_text(nccl)} several, with {SHARING_VARIABLE}=1"
    needs = f"NCCL {version_text(SHARING_NCCL)}, as torch {SHARING_TORCH} ships it, lets several share"
    return f"{under_gloo}; under NCCL {version_text(nccl)} one ({needs})"


def _packages(machine: Machine) -> Row:
    found = machine.packages
    if isinstance(found, Unknown):
        return _row("packages", found)
    return Row("packages", ", ".join(f"{name} {version or 'no'}" for name, version in found.items()))


def _row(label: str, value: str | Unknown) -> Row:
    return Row(label, f"unknown: {value.why}", "unknown") if isinstance(value, Unknown) else Row(label, value)


def _size(amount: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20)):
        if amount >= size:
            return f"{amount / size:.1f} {unit}" if amount < 100 * size else f"{amount // size:,} {unit}"
    return f"{amount:,} bytes"


# --- on a stream


def show(examination: Examination, stream: IO[str], seams: bool = False) -> None:
    """Print all of it; with ``seams``, each of those, too."""
    console = console_on(stream)
    console.print(across(console, "ddpcheck doctor"))
    for section in sections(examination, seams):
        console.print(Text(section.title, style="bold"))
        table = _grid(15)
        for row in section.rows:
            style = {"fact": "", "unknown": "yellow", "concern": "yellow"}[row.kind]
            table.add_row(row.label, Text(plain(row.text), style=style, overflow="fold"))
        console.print(Padding(table, (0, 0, 1, 2)))
    console.print(Text("self-test", style="bold"))
    for test in examination.stack.tests:
        mark, style = _MARKS[test.outcome]
        first, *more = plain(outcome_of(test, examination.torch)).splitlines()
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=4)
        table.add_column(no_wrap=True, width=15)
        table.add_column(overflow="fold")
        table.add_row(Text(mark, style=style), test.name, first)
        console.print(Padding(table, (0, 0, 0, 2)))
        if more:
            console.print(Padding(Text("\n".join(more), overflow="fold"), (0, 0, 0, 8)))
        if test.advice:
            told = _grid(4)
            told.add_row("fix", test.advice)
            console.print(Padding(told, (0, 0, 0, 8)))
    console.print()
    healthy = examination.stack.healthy
    console.print(Text(verdict(examination), style="bold green" if healthy else "bold red"))


def _grid(width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, width=width, style="dim")
    table.add_column(overflow="fold")
    return table


def write(examination: Examination, path: Path) -> None:
    """The same as JSON; what could not be found out is an object with ``unknown``, which says why."""
    document = {"schema": 1, "healthy": examination.stack.healthy, **_plain(examination)}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value
