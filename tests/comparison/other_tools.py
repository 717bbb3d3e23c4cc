"""What other tools say of faulty programs: ``python -m tests.comparison.other_tools`` makes the tables of the page.

The programs run in two ranks on the CPU (gloo). First those of the checks, under torchrun alone and with
TORCH_DISTRIBUTED_DEBUG=DETAIL; what ddpcheck says of them stands beside them (reported.txt), and other tests hold it.
Then small ones without a wrapper, which are what the other tools look for, with ACCELERATE_DEBUG_MODE (what
``accelerate launch --debug`` sets) and under ``ddpcheck run``, too. ``--markdown`` writes the tables into the page.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ddpcheck.checks.registry import checks, has_part
from tests.programs.reported import folder

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
BEGIN, END = "<!-- outcomes -->\n", "<!-- /outcomes -->\n"
LIMIT = 75.0
"""Seconds after which a run hangs. It takes some seconds otherwise."""
SMALL = sorted(Path(__file__).with_name("programs").glob("*.py"))

BIN = Path(sys.executable).parent
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
DETAIL, ACCELERATE, OURS = "torch's `DETAIL`", "accelerate's debug mode", "ddpcheck"
TOOLS: dict[str, tuple[list[str], dict[str, str]]] = {
    "torchrun alone": (TORCHRUN, {}),
    DETAIL: (TORCHRUN, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    ACCELERATE: (TORCHRUN, {"ACCELERATE_DEBUG_MODE": "1"}),
    OURS: ([str(BIN / "ddpcheck"), "run", *TORCHRUN[1:]], {}),
}
"""Command and environment variables, by tool."""


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
        )
        code: int | None
        try:
            printed, _ = process.communicate(timeout=LIMIT)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its ranks, which are in sessions of their own
            printed, _ = process.communicate()
            code = None
    return Outcome(code, frozenset(printed.splitlines()))


def said(outcome: Outcome, crashes: bool = False) -> str:
    """What a reader learns of the fault; `crashes`: right programs do so under this tool, too."""
    found = [re.match(r"(?:\d+\. )(error|warning) +([\w-]+)", line) for line in sorted(outcome.lines)]
    if any(found):
        return ", ".join(dict.fromkeys(f"{one[1]} `{one[2]}`" for one in found if one))
    if outcome.code is None:
        return "hangs"
    if outcome.code == 0:
        warnings = [line for line in outcome.lines if "Warning: " in line]
        return f"warns: {_shortest(warnings)}" if warnings else "nothing"
    errors = [line for line in outcome.lines if re.search(r"\b\w*(Error|Exception)\b: ", line)]
    named = [line for line in errors if not re.search("ChildFailedError|CalledProcessError", line)]
    if named:
        return f"fails: {_shortest(named)}"
    return "crashes, as right programs do" if crashes else "fails"


def _shortest(lines: list[str]) -> str:
    line = min(lines, key=lambda one: (len(one), one))
    line = re.sub(r"^.*?(?=\b\w+(Error|Exception|Warning)\b: )", "", line).replace("<", "&lt;")
    line = re.sub(r"\[/\S+\] ", "", line)  # where torch was built
    return line if len(line) < 100 else line[:97] + "…"


def by_ddpcheck(check: str) -> str:
    """What the command reports of the program: error, or warning."""
    first = (folder(check) / "reported.txt").read_text().splitlines()[0]
    return f"{'warning' if ' at risk: ' in first else 'error'} `{check}`"


def table(rows: list[list[str]]) -> str:
    """The rows as Markdown, the first as the head; each is printed as it comes."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def of_checks(names: list[str]) -> str:
    """The checks' programs."""
    tools = ["torchrun alone", DETAIL]
    right = folder("gradient-sync") / "correct.py"
    crashing = {tool: said(run(tool, right)).startswith("fails") for tool in tools}
    rows = [["program of", *tools, OURS]]
    for check in names:
        cells = [said(run(tool, folder(check) / "faulty.py"), crashing[tool]) for tool in tools]
        rows.append([f"[`{check}`](checks/{check}.md)", *cells, by_ddpcheck(check)])
        print(*rows[-1], sep=" | ", flush=True)
    return table(rows)


def of_collectives() -> str:
    """The small programs without a wrapper."""
    rows = [["program", *TOOLS]]
    for program in SMALL:
        title = ast.get_docstring(ast.parse(program.read_text())) or ""
        rows.append([title, *(said(run(tool, program)) for tool in TOOLS)])
        print(*rows[-1], sep=" | ", flush=True)
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="write the tables into docs/comparison.md")
    parser.add_argument("checks", nargs="*", help="of these checks' programs alone")
    given = parser.parse_args()
    text = of_collectives() + "\n" + of_checks(given.checks or [one for one in checks() if has_part(one, "run")])
    if given.markdown and not given.checks:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
