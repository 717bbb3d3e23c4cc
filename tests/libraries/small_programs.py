"""The small programs that show, without ddpcheck, what the suite has found in a library; each says what it prints."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "fixtures" / "libraries"
MARK = "# prints:\n"

SHOWS = {
    "accelerate_half_a_checkpoint": "checkpoint-atomic-save",
    "accelerate_one_ahead": "resume-equivalence:random",
    "accelerate_schedule": "optimizer-sync:schedule",
    "accelerate_seeds": "shard-partition",
    "accelerate_tail": "gradient-oracle:accumulation-tail",
    "fabric_double": "gradient-oracle",
    "fabric_epoch": "resume-equivalence",
    "fabric_seeds": "shard-partition",
    "lightning_epoch_end": "resume-equivalence:epoch-end",
    "lightning_metrics": "metric-oracle",
    "lightning_sampler": "shard-partition:sampler",
    "lightning_seeds": "rng-independence",
    "lightning_streams": "resume-equivalence:random",
    "lightning_tail": "gradient-oracle:accumulation-tail",
}
"""The check that tells of what each of them shows."""


class Program(NamedTuple):
    """One of them."""

    file: Path
    claim: str
    """Its docstring: what it shows, in a sentence."""
    code: str
    """What follows on that."""
    printed: list[str]
    """The lines that it prints, as it says itself."""

    @property
    def library(self) -> str:
        return self.file.stem.partition("_")[0]


def programs() -> list[Program]:
    """All of them, by name."""
    return [_read(file) for file in sorted(FOLDER.glob("*.py"))]


def _read(file: Path) -> Program:
    source = file.read_text()
    code, _, printed = source.partition(MARK)
    claim = ast.get_docstring(ast.parse(source)) or ""
    return Program(
        file,
        claim,
        code.partition('"""\n')[2].strip(),
        [line.removeprefix("#").strip() for line in printed.splitlines() if line.strip()],
    )
