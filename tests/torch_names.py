"""Which names a program imports that the torch which is installed does not have."""

from __future__ import annotations

import ast
import importlib
import warnings
from pathlib import Path

import pytest
import torch

LOSSES_ARE_NOT_TAKEN_APART = not hasattr(torch.autograd.graph.Node, "_input_metadata")
"""In torch 2.4 nothing says what a loss was made of, and token-weight has nothing to weigh."""


def skip_without(program: Path | str) -> None:
    """Skip the test, with that reason, if this torch lacks a name that the program imports from it."""
    missing = missing_names(program.read_text() if isinstance(program, Path) else program)
    if missing:
        pytest.skip(f"torch {torch.__version__} has no {', '.join(missing)}")


def missing_names(text: str) -> list[str]:
    """With dots, such as ``torch.distributed.fsdp.fully_shard``."""
    wanted = [
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch"
        for alias in node.names
    ]
    return sorted({f"{module}.{name}" for module, name in wanted if not _is_there(module, name)})


def _is_there(module: str, name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of itself while it is imported
        try:
            if hasattr(importlib.import_module(module), name):
                return True
            importlib.import_module(f"{module}.{name}")
        except ImportError:
            return False
    return True
