"""The table of docs/parallelism.md: which checks look at something in one training that is spread in ten ways.

``python -m tests.parallelism.table`` runs them and writes the table into the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ddpcheck.checks.registry import checks, has_part

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "parallelism.md"
TRAINING = ROOT / "fixtures" / "parallelism" / "train.py"
WAYS = {
    "ddp": "DDP", "by-hand": "reduced by the program", "zero": "DDP, ZeRO", "local-sgd": "local SGD", "fsdp2": "FSDP2",
    "hsdp": "HSDP", "fsdp1": "FSDP", "tp": "tensor parallel", "fsdp2-tp": "FSDP2 x TP", "pipeline": "pipeline",
}  # fmt: skip
BEGIN, END = "<!-- the table: python -m tests.parallelism.table -->\n", "<!-- end of the table -->\n"
NOT_OF_A_RUN = (*(check for check in checks() if not has_part(check, "run")), "device-placement")
"""What takes a second run, or GPUs."""
ON_MESHES = ("fsdp2", "hsdp", "tp", "fsdp2-tp")
SAY_NOTHING = "--names-that-say-nothing"
"""The same with a mesh whose dimensions have names that nobody knows."""


def looked(way: str, *args: str) -> tuple[dict[str, bool], list[str]]:
    """By check: whether it looked at something; and what was found, of which there should be nothing."""
    from tests.corpus.forked import run  # which puts probes in place, for good

    ran = run(TRAINING, way, *args, ranks=4)
    assert set(ran.exits.values()) == {0}, (ran.exits, ran.hung, ran.output)
    assert ran.defects == []
    (judged,) = ran.judged
    return {check: bool(one.checked) for check, one in judged.items()}, [
        f"{f.check}: {f.message}" for f in ran.findings
    ]


def cells(runs: list[dict[str, bool]]) -> dict[str, str]:
    """By check, of a run and, where there is a mesh, of one without names that say something: what the table has."""
    return {
        check: "-" if not looked else "yes" if all(one[check] for one in runs) else "named"
        for check, looked in runs[0].items()
    }


def options(way: str) -> list[list[str]]:
    """The runs of a way."""
    return [[], [SAY_NOTHING]] if way in ON_MESHES else [[]]


def table(found: dict[str, dict[str, str]]) -> str:
    """The checks by the ways, as markdown."""
    checks = [check for check in next(iter(found.values())) if check not in NOT_OF_A_RUN]
    lines = [
        "| check | " + " | ".join(WAYS[way] for way in found) + " |",
        "|---" * (len(found) + 1) + "|",
        *[f"| `{c}` | " + " | ".join(its[c] for its in found.values()) + " |" for c in checks],
    ]
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table that the page has."""
    match = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", PAGE.read_text(), re.DOTALL)
    return match[1] if match is not None else ""


def main() -> None:
    from ddpcheck.probes import all_probes

    all_probes.patch()
    found = {}
    for way in WAYS:
        runs = []
        for args in options(way):
            sys.stderr.write(f"{' '.join([way, *args])} ...\n")
            checked, said = looked(way, *args)
            sys.stderr.write("".join(f"  {one}\n" for one in said))
            runs.append(checked)
        found[way] = cells(runs)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
