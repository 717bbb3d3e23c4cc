"""What other tools say of the faulty programs in fixtures: ``python -m tests.comparison.other_tools``.

Each program runs in two ranks on the CPU (gloo): under torchrun alone, with TORCH_DISTRIBUTED_DEBUG=DETAIL, with
ACCELERATE_DEBUG_MODE (what ``accelerate launch --debug`` sets), and under ``ddpcheck run``. A tool has said something
where the run ends with an error or prints a warning, and the correct twin does not under the same tool; a run that
does not end within the limit hangs. ``--markdown`` writes the table into docs/comparison.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ddpcheck.checks.registry import checks, has_part
from tests.programs.reported import folder

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
BEGIN, END = "<!-- outcomes -->\n", "<!-- /outcomes -->\n"
LIMIT = 60.0
"""Seconds after which a run hangs. It takes some seconds otherwise."""
OF_ACCELERATE = Path(__file__).with_name("gathered_shapes.py")

BIN = Path(sys.executable).parent
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
TOOLS: dict[str, tuple[list[str], dict[str, str]]] = {
    "torchrun": (TORCHRUN, {}),
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`": (TORCHRUN, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    "`ACCELERATE_DEBUG_MODE=1`": (TORCHRUN, {"ACCELERATE_DEBUG_MODE": "1"}),
    "`ddpcheck run`": ([str(BIN / "ddpcheck"), "run", "--standalone", "--nproc-per-node", "2"], {}),
}


class Outcome(NamedTuple):
    """How one program ended under one tool."""

    code: int | None
    """None where it did not end."""
    lines: frozenset[str]


def run(tool: str, program: Path) -> Outcome:
    """Run a program under a tool, in a folder of its own."""
    command, variables = TOOLS[tool]
    with tempfile.TemporaryDirectory(prefix="ddpcheck-comparison-") as own:
        shutil.copy(program, Path(own) / "train.py")
        process = subprocess.Popen(
            [*command, "train.py"],
            cwd=own,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        code: int | None
        try:
            printed, _ = process.communicate(timeout=LIMIT)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its ranks
            try:
                printed, _ = process.communicate(timeout=45)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                printed, _ = process.communicate()
            code = None
    return Outcome(code, frozenset(line for line in map(_without_numbers, printed.splitlines()) if line))


def _without_numbers(line: str) -> str:
    """A line without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|\d+", "0", line).strip()


def said(faulty: Outcome, correct: Callable[[], Outcome]) -> str:
    """What a reader learns of the fault: `hangs`, an error, or a warning that the twin does not show."""
    if faulty.code is None:
        return "hangs"
    if faulty.code != 0:
        if correct().code != 0:
            return "fails, and so does the correct twin"
        errors = [line for line in faulty.lines if re.search(r"\b\w*(Error|Exception)\b: ", line)]
        named = [line for line in errors if not re.search("ChildFailedError|CalledProcessError", line)]
        return f"fails: {_shortest(named)}" if named else "fails"
    warnings = {line for line in faulty.lines if re.search(r"warn|error", line, re.IGNORECASE)}
    more = list(warnings - correct().lines) if warnings else []
    return f"warns: {_shortest(more)}" if more else "nothing"


def _shortest(lines: list[str]) -> str:
    line = min(lines, key=lambda one: (len(one), one))
    line = re.sub(r"^.*?(?=\b\w+(Error|Exception|Warning)\b: )", "", line)
    return line if len(line) < 100 else line[:97] + "…"


def outcomes(tool: str, check: str) -> str:
    """What a tool says of a check's faulty program; of ddpcheck, the finding."""
    faulty = run(tool, folder(check) / "faulty.py")
    if tool == "`ddpcheck run`":
        found = re.findall(
            r"^\d+\. (error|warning) +([\w-]+)|^0\. (error|warning) +([\w-]+)", "\n".join(faulty.lines), re.M
        )
        return " ".join(dict.fromkeys(part for one in found for part in one if part)) or "nothing"
    return said(faulty, lambda: run(tool, folder(check) / "correct.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/comparison.md")
    parser.add_argument("checks", nargs="*", help="of these checks' programs alone")
    given = parser.parse_args()
    rows = []
    for check in given.checks or [one for one in checks() if has_part(one, "run")]:
        rows.append([f"`{check}`", *(outcomes(tool, check) for tool in TOOLS)])
        print(*rows[-1], sep=" | ", flush=True)
    own = [said(run(tool, OF_ACCELERATE), lambda: Outcome(0, frozenset())) for tool in TOOLS]
    print("gathered shapes", *own, sep=" | ")
    lines = [["program of", *TOOLS], ["---"] * (len(TOOLS) + 1), *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"
    if given.markdown and not given.checks:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
