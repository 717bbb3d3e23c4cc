"""The programs of the corpus, and what each says of itself."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"


@dataclass
class Program:
    """One file of the corpus."""

    path: Path
    row: str
    checks: list[str]
    """The ids under which its fault may fittingly be found."""
    ends: str
    """How it ends with its fault: it finishes, fails, or hangs."""
    nproc: int = 2
    launch: str = "torchrun"
    """``spawn`` where it starts its ranks itself; ``interpreters`` where ranks must not be forks of one process."""
    severity: str = "error"
    env: dict[str, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    """The lines that are marked as the fault, or as what proves it."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def faulty(self) -> bool:
        """It has a fault to switch on; the others are correct programs."""
        return self.row != "ok"

    @property
    def forkable(self) -> bool:
        """Forked ranks show what interpreters would."""
        return self.launch == "torchrun"

    @property
    def title(self) -> str:
        """What its docstring says of it."""
        text = " ".join((ast.get_docstring(ast.parse(self.path.read_text())) or "").split("\n\n")[0].split())
        return re.sub(r"^[A-Z]\d+: |^S0-\d+: ", "", text)


def programs(*prefixes: str) -> list[Program]:
    """The programs of the corpus, by name; those alone whose names begin so, if any are given."""
    return [
        read(path)
        for path in sorted(CORPUS.glob("*.py"))
        if path.stem != "__init__" and (not prefixes or path.stem.startswith(prefixes))
    ]


def read(path: Path) -> Program:
    """One program, from its ``CORPUS`` and the marks on its lines."""
    text = path.read_text()
    said = next(
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CORPUS"
    )
    lines = {
        number: match[1].lower()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := re.search(r"#\s*(FAULT|PROOF)\b", line))
    }
    return Program(path=path, lines=lines, **said)
