"""What other tools say of the faulty programs in fixtures: ``python -m tests.comparison.other_tools``.

Each program runs in two ranks on the CPU (gloo), under torchrun alone and with TORCH_DISTRIBUTED_DEBUG=DETAIL; what
ddpcheck says stands beside the programs (reported.txt), and other tests hold it. A tool has said something where the
run ends with an error or prints a warning, and the correct twin does not under the same tool; a run that does not end
within the limit hangs. One more program gathers by accelerate's function, and runs with ACCELERATE_DEBUG_MODE, too
(what ``accelerate launch --debug`` sets). ``--markdown`` writes both tables into docs/comparison.md.
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
from functools import partial
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
TOOLS: dict[str, dict[str, str]] = {
    "torchrun alone": {},
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "`ACCELERATE_DEBUG_MODE=1`": {"ACCELERATE_DEBUG_MODE": "1"},
}
"""Environment variables, by tool."""
FOR_ALL = list(TOOLS)[:2]
"""Accelerate's mode looks at accelerate's own functions, which the programs of the checks do not use."""


class Outcome(NamedTuple):
    """How one program ended under one tool."""

    code: int | None
    """None where it did not end."""
    lines: frozenset[str]


def run(tool: str, program: Path) -> Outcome:
    """Run a program under a tool, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-comparison-") as own:
        shutil.copy(program, Path(own) / "train.py")
        process = subprocess.Popen(
            [*TORCHRUN, "train.py"],
            cwd=own,
            env={**os.environ, "OMP_NUM_THREADS": "1", **TOOLS[tool]},
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
        errors = {line for line in faulty.lines if re.search(r"\b\w*(Error|Exception)\b: ", line)}
        named = {line for line in errors if not re.search("ChildFailedError|CalledProcessError", line)}
        twin = correct()
        if named - twin.lines:
            return f"fails: {_shortest(list(named - twin.lines))}"
        return "fails" if twin.code == 0 else "crashes, as the correct twin does"
    warnings = {line for line in faulty.lines if re.search(r"warn|error", line, re.IGNORECASE)}
    more = list(warnings - correct().lines) if warnings else []
    return f"warns: {_shortest(more)}" if more else "nothing"


def _shortest(lines: list[str]) -> str:
    line = min(lines, key=lambda one: (len(one), one))
    line = re.sub(r"^.*?(?=\b\w+(Error|Exception|Warning)\b: )", "", line)
    return line if len(line) < 100 else line[:97] + "…"


def by_ddpcheck(check: str) -> str:
    """What the command reports of the program: error, or warning."""
    first = (folder(check) / "reported.txt").read_text().splitlines()[0]
    return f"{'warning' if ' at risk: ' in first else 'error'}, with its line"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="write the tables into docs/comparison.md")
    parser.add_argument("checks", nargs="*", help="of these checks' programs alone")
    given = parser.parse_args()
    rows = []
    for check in given.checks or [one for one in checks() if has_part(one, "run")]:
        faulty, correct = (folder(check) / name for name in ("faulty.py", "correct.py"))
        cells = [said(run(tool, faulty), partial(run, tool, correct)) for tool in FOR_ALL]
        rows.append([f"[`{check}`](checks/{check}.md)", *cells, by_ddpcheck(check)])
        print(*rows[-1], sep=" | ", flush=True)
    own = [said(run(tool, OF_ACCELERATE), lambda: Outcome(0, frozenset())) for tool in TOOLS]
    print("gathered shapes", *own, sep=" | ")
    both = table(["program of", *FOR_ALL, "`ddpcheck run`"], rows) + "\n" + table(list(TOOLS), [own])
    if given.markdown and not given.checks:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{both}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
