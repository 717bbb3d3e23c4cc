"""The package's own modules, as files and as trees."""

from __future__ import annotations

import ast
from pathlib import Path

import ddpcheck

ROOT = Path(ddpcheck.__file__).parent


def files() -> dict[str, Path]:
    """Every module of the package, by name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


FILES = files()


def tree(path: Path) -> ast.Module:
    """A file's code."""
    return ast.parse(path.read_text(encoding="utf-8"))
