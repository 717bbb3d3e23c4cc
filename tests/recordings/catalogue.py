"""Every program whose evidence is recorded: faults, twins, right programs, cases and documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from ddpcheck.checks.registry import checks, has_part, those
from fixtures.cases.said.check import ROWS
from tests.corpus import planted
from tests.corpus.programs import programs
from tests.forking import ON_DEVICES
from tests.torch_names import missing_names

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"


DEVICE = " @device"
"""How the name ends of a program on simulated devices."""


class Recorded(NamedTuple):
    """One run of a program."""

    name: str
    """``corpus/b01_module_called --fault``: the folder, the file, and what makes it another run of that file."""
    path: Path
    arguments: tuple[str | bytes, ...] = ()
    ranks: int = 2
    by: Literal["forks", "command", "interpreters"] = "forks"
    """In forks of one process, by the command in forks, or by the command in interpreters."""
    env: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    """Of the command."""
    text: str = ""
    """Where it is not empty: what is run, from a file of that name where the program runs."""

    @property
    def source(self) -> str:
        """The text that is run."""
        return self.text or self.path.read_text()

    def on_device(self) -> Recorded:
        """The same program, with its tensors on a simulated device in each rank."""
        return self._replace(name=f"{self.name}{DEVICE}", env=(*self.env, (ON_DEVICES, "1")))

    @property
    def missing(self) -> list[str]:
        """What this torch lacks of the names that the program imports from it."""
        return missing_names(self.source)


@cache
def everything() -> dict[str, Recorded]:
    """All of them by name, in a fixed order."""
    all_of_them = (*_corpus(), *_of_checks(), *_rules(), *_right(), *_planted(), *_cases(), *_said(), *_documents())
    return {one.name: one for one in all_of_them}


def named(name: str) -> Recorded:
    """One of them, or the same on devices."""
    program = everything()[name.removesuffix(DEVICE)]
    return program.on_device() if name.endswith(DEVICE) else program


def _corpus() -> Iterator[Recorded]:
    for program in programs():
        by: Literal["forks", "interpreters"] = "forks" if program.forkable else "interpreters"
        for arguments in ((), ("--fault",)) if program.faulty else ((),):
            yield Recorded(
                " ".join((f"corpus/{program.name}", *arguments)),
                program.path,
                arguments,
                program.nproc,
                by,
                tuple(program.env.items()),
                () if program.launch == "spawn" else ("--nproc-per-node", str(program.nproc)),
            )


def _of_checks() -> Iterator[Recorded]:
    for check in checks():
        if has_part(check, "run"):
            folder = FIXTURES / check.replace("-", "_")
            for which in ("faulty", "correct"):
                path = folder / f"{which}.py"
                yield Recorded(f"checks/{folder.name}/{which}", path, text=path.read_text())


def _rules() -> Iterator[Recorded]:
    """One program for a rule, ``fixtures/rules/CHECK/RULE.py``, with its fault and without."""
    endings = {check.replace("-", "_") for check in those("of_endings")}
    for path in sorted((FIXTURES / "rules").glob("*/*.py")):
        name = f"rules/{path.parent.name}/{path.stem}".replace("_", "-")
        text = path.read_text()
        by: Literal["forks", "command"] = "command" if path.parent.name in endings else "forks"
        launched = ("--nproc-per-node", str(ranks(text)), "--stall-timeout", "5")
        options = launched if by == "command" and "mp.spawn" not in text else ()
        for arguments in ((), ("--fault",)):
            yield Recorded(" ".join((name, *arguments)), path, arguments, ranks(text), by, options=options)


def ranks(text: str) -> int:
    """The number on the first line of a program: ``# 4 ranks …``; two where there is none."""
    found = re.match(r"# (\d) ranks\b", text)
    return int(found[1]) if found else 2


def _right() -> Iterator[Recorded]:
    for path in sorted((FIXTURES / "right").glob("*.py")):
        yield Recorded(f"right/{path.stem}", path, ranks=ranks(path.read_text()))


def _planted() -> Iterator[Recorded]:
    for name, fault in planted.FAULTS.items():
        path = planted.RIGHT / f"{fault.program}.py"
        yield Recorded(f"planted/{name}", path, ranks=fault.ranks, text=planted.planted(fault))


CASES: dict[str, tuple[int, tuple[tuple[str | bytes, ...], ...]]] = {
    "decoder_in_units": (2, ((), ("--fault",))),
    "diloco": (2, ((),)),
    "double_step": (2, ((),)),
    "dtensor_optimizer": (1, ((),)),
    "ema_buffers": (2, ((),)),
    "expert_parallel": (2, ((),)),
    "fsdp1": (2, ((),)),
    "fsdp2": (2, ((),)),
    "fsdp2_faults": (2, (("rankseed",), ("optfirst",), ("clip",), ("nosync",), ("allwrite",), ("noepoch",))),
    "hybrid_mesh": (4, ((), ("--fault",))),
    "ignored_parameters": (2, ((),)),
    "local_sgd": (2, ((),)),
    "model_parts": (2, (("conv.weight",), ("tail.1.running_mean",), ("nothing",))),
    "noise_alike": (4, ((), ("--fixed",))),
    "packed_warm_up": (2, ((), ("--fault",))),
    "peeked_loader": (2, (("64", "8", "4", "1"), ("64", "8", "4", "0"))),
    "pipeline_divided_by_tokens": (2, ((),)),
    "pipeline_equal_stages": (2, ((),)),
    "pipeline_with_one_table": (3, ((), ("--fault",))),
    "reused_descriptor": (2, (("metrics",),)),
    "surrogate_error": (1, ((),)),
    "surrogate_file": (1, ((),)),
    "tensor_parallel": (2, ((),)),
    "tensor_parallel_by_hand": (2, ((),)),
    "truncate_only": (2, ((),)),
    "two_evaluated_models": (2, (("--epochs", "1"),)),
    "undecodable_argument": (1, ((b"caf\xe9",),)),
    "warning_only": (2, ((),)),
    "ways_part": (2, (("break",), ("return",), ("continue",), ("helper",), ("end",), ("agreed",))),
    "zeroed_within": (2, ((), ("--fixed",))),
}
"""Programs of fixtures/cases/run: the ranks, and the arguments of each run. Left out are garbage_evidence, which
damages what is recorded, and interrupted, which takes a signal: tests/command runs them."""


def _cases() -> Iterator[Recorded]:
    for stem, (number, calls) in CASES.items():
        for arguments in calls:
            shown = [one.decode(errors="backslashreplace") if isinstance(one, bytes) else one for one in arguments]
            yield Recorded(
                " ".join((f"cases/{stem}", *shown)),
                FIXTURES / "cases" / "run" / f"{stem}.py",
                arguments,
                number,
                "command",
                options=("--nproc-per-node", str(number)),
            )


SAID = FIXTURES / "cases" / "said"


def _said() -> Iterator[Recorded]:
    for file, given, number, *_ in ROWS:
        stem, arguments = Path(file).stem, tuple(given.split())
        yield Recorded(
            " ".join((f"said/{stem}", *arguments)),
            SAID / file,
            arguments,
            number,
            "command",
            options=("--nproc-per-node", str(number), "--stall-timeout", "20"),
        )


DOCUMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "s0_basic": ((),),
    "s0_checkpoint": ((),),
    "s0_model_parallel": ((),),
    "s2_breast_cancer": (("--epochs", "2"),),
    "s3_ten_steps": ((),),
    "s4_pitfalls": ((), ("--no-sampler",), ("--all-save",), ("--move-apart",), ("--wrap-first",)),
}
"""The programs of the documents that teach DDP, and the arguments of each run."""


def _documents() -> Iterator[Recorded]:
    for stem, calls in DOCUMENTS.items():
        for arguments in calls:
            yield Recorded(" ".join((f"documents/{stem}", *arguments)), FIXTURES / f"{stem}.py", arguments)
    for arguments in (("--processes", "2", "--epochs", "2"), ("--processes", "2", "--epochs", "2", "--set-epoch")):
        yield Recorded(
            " ".join(("documents/s1_digits", *arguments)), FIXTURES / "s1_digits.py", arguments, by="interpreters"
        )
