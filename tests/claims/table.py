"""What a session has shown of the documents' claims, and docs/claims.md.

    python tests/claims/table.py > docs/claims.md

A claim counts as verified, or refuted, only where all of its tests have
passed, but for those that need GPUs and did not get them. Which test functions
there are is read from the files, not from the session, so that one that was
left out is missed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for a run as a script

from tests.claims.claims import CLAIMS, DOCUMENTS, Claim

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass
class ClaimTests:
    """The tests of one claim: those that there are, and what became of them in a session."""

    there: set[str] = field(default_factory=set)
    """``file::function``."""
    for_gpus: set[str] = field(default_factory=set)
    """Those of them that may be skipped where there are no GPUs, or not enough."""
    results: dict[str, set[str]] = field(default_factory=dict)
    """By ``file::function``: passed, failed, skipped; several, where one function makes several tests."""
    left_out: Counter[str] = field(default_factory=Counter)
    """By ``file::function``: how many of the tests that it makes were deselected, or never begun."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why tests were skipped, and how many."""


@dataclass(frozen=True)
class Line:
    """One claim's line of the table."""

    claim: Claim
    outcome: str
    """As the claim says, or: skipped, FAILED, partly run, not run, NO TEST."""
    why: str = ""


def written_tests(folder: Path = HERE) -> dict[int, ClaimTests]:
    """The test functions of each claim, as they stand in the files of a folder."""
    found: dict[int, ClaimTests] = {}
    for path in sorted(folder.glob("test_claim_*.py")):
        number = claim_of(path.name)
        if number is not None:
            tests = found.setdefault(number, ClaimTests())
            for name, needs_gpus in _functions(path):
                tests.there.add(f"{path.name}::{name}")
                if needs_gpus:
                    tests.for_gpus.add(f"{path.name}::{name}")
    return found


def claim_of(file: str) -> int | None:
    """The number of the claim that a file of tests is about; None for other files."""
    match = re.match(r"test_claim_(\d\d)_\w+\.py$", file)
    return int(match[1]) if match else None


def _functions(path: Path) -> Iterable[tuple[str, bool]]:
    """The test functions of a file, and whether each needs GPUs, by its marks."""
    for node in ast.parse(path.read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test") else [node]
        for one in inside:
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test"):
                yield one.name, any(_needs_gpus(ast.unparse(mark)) for mark in one.decorator_list)


def _needs_gpus(mark: str) -> bool:
    name = mark.partition("(")[0]
    return name == "pytest.mark.gpu" or (name == "pytest.mark.ddp" and "device='cuda'" in mark)


def lines(tests: Mapping[int, ClaimTests], claims: Iterable[Claim] = CLAIMS) -> list[Line]:
    """The table: a line for each claim."""
    return [_line(claim, tests.get(claim.number, ClaimTests())) for claim in claims]


def _line(claim: Claim, tests: ClaimTests) -> Line:
    results = set().union(*tests.results.values())
    if "failed" in results:
        failed = sorted(name.split("::")[-1] for name, found in tests.results.items() if "failed" in found)
        return Line(claim, "FAILED", ", ".join(failed))
    if not tests.there:
        return Line(claim, "NO TEST")
    if not results:
        return Line(claim, "not run")
    skipped = [f"{_count(number)} skipped: {reason}" for reason, number in tests.reasons.items()]
    if "passed" not in results:
        return Line(claim, "skipped", "; ".join(skipped))
    missing = []
    if idle := len(tests.there - set(tests.results)):
        missing.append(f"{len(tests.there) - idle} of its {len(tests.there)} test functions")
    if left := sum(number for name, number in tests.left_out.items() if name in tests.results):
        missing.append(f"{_count(left)} left out")
    partly = any("skipped" in found for name, found in tests.results.items() if name not in tests.for_gpus)
    return Line(claim, "partly run" if missing or partly else claim.outcome, "; ".join([*missing, *skipped]))


def _count(number: int) -> str:
    return f"{number} test" if number == 1 else f"{number} tests"


# --- docs/claims.md


def as_markdown(tests: Mapping[int, ClaimTests], claims: Iterable[Claim] = CLAIMS) -> str:
    """docs/claims.md."""
    rows = [
        f"| {claim.number} | {' '.join(claim.documents)} | {claim.claim} | {claim.outcome} | {claim.shows} | "
        f"{', '.join(_files(tests.get(claim.number, ClaimTests())))} |"
        for claim in claims
    ]
    return "\n".join(
        [
            "# The documents' claims",
            "",
            "What people are taught about DDP, each claim tested in real ranks, with the fault that would break it.",
            "`pytest tests/claims` runs them all, and ends with this table as that session has it: a claim is only",
            "called verified, or refuted, if all of its tests passed. Where one was left out or skipped it is `partly",
            "run`; a test that needs more GPUs than there are may be skipped, which is said along with the outcome.",
            "",
            *[f"- **{name}**: {title}" for name, title in DOCUMENTS.items()],
            "",
            "Their programs are in fixtures/, and run by themselves. `python tests/claims/table.py` prints this page,",
            "tests/claims/test_table.py holds it.",
            "",
            "| # | document | claim | outcome | the tests show | in tests/claims |",
            "|---" * 6 + "|",
            *rows,
            "",
        ]
    )


def _files(tests: ClaimTests) -> list[str]:
    return sorted({name.partition("::")[0] for name in tests.there})


if __name__ == "__main__":
    sys.stdout.write(as_markdown(written_tests()))
