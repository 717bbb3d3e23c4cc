"""torchrun's own options, read from its source: importing torch takes seconds, and most mistakes need none of it.

What is read decides whether a command line is good; torchrun's own parser then makes of it what it makes. An option
that uses what is not understood here (another torch) has that parser asked at once.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

_MODULE = "torch.distributed.run"
_FUNCTION = "get_args_parser"
_KINDS = {"str": str, "int": int, "float": float}
_VARIABLE = "PET_"
"""What the environment's names of torchrun's options begin with."""


class NoTorch(Exception):
    """There is no torch in this environment."""


class Unreadable(Exception):
    """This torch writes its options in a way that is not understood here."""


class Read(argparse.ArgumentParser):
    """A parser of torchrun's options as they are written down."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.in_part: set[str] = set()
        """The names of the values of which something was not understood, such as which of them are possible."""


def parser() -> argparse.ArgumentParser:
    """A parser that takes torchrun's options: one that was read, or torchrun's own where that cannot be."""
    if _MODULE not in sys.modules:
        try:
            return read(source())
        except (Unreadable, OSError, SyntaxError, ValueError):
            pass
    return torchruns_own()


def torchruns_own() -> argparse.ArgumentParser:
    """torchrun's own parser; imports torch."""
    try:
        from torch.distributed.run import get_args_parser
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NoTorch from None
    made: argparse.ArgumentParser = get_args_parser()
    return made


def source() -> str:
    """The text of torchrun's module."""
    folder = torch_folder()
    if folder is None:
        raise Unreadable("torch is in no folder")
    return (folder / "distributed" / "run.py").read_text(encoding="utf-8")


def torch_folder() -> Path | None:
    """Where torch is, without importing it; None where it is in no folder. Raises NoTorch."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if found is None:
        raise NoTorch
    return Path(found.origin).parent if found.origin is not None else None


def read(text: str) -> Read:
    """The options that a text of torchrun's module defines; raises Unreadable."""
    made = Read(add_help=True, allow_abbrev=True)
    function = next((n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == _FUNCTION), None)
    if function is None:
        raise Unreadable(f"there is no {_FUNCTION}")
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ArgumentParser":
            if any(keyword.arg not in ("description", "allow_abbrev") for keyword in node.keywords):
                raise Unreadable("its parser is another one")
            for keyword in node.keywords:
                if keyword.arg == "allow_abbrev":
                    made.allow_abbrev = bool(_literal(keyword.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "add_argument":
                _add(made, node)
            elif node.func.attr.startswith("add_"):
                raise Unreadable(f"it has what {node.func.attr} makes")
    if not {"nnodes", "nproc_per_node", "training_script", "training_script_args"} <= {a.dest for a in made._actions}:
        raise Unreadable("it lacks what torchrun has had always")
    return made


def _add(made: Read, call: ast.Call) -> None:
    """One option, as far as it is understood."""
    names = [str(_literal(one)) for one in call.args]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    kept: dict[str, Any] = {}
    action = given.pop("action", None)
    variable = action.id if isinstance(action, ast.Name) else None
    if action is not None and variable not in ("env", "check_env"):
        kept["action"] = _literal(action)
    partly = False
    for name, value in given.items():
        if name == "type":
            partly |= not (isinstance(value, ast.Name) and value.id in _KINDS)
            kept[name] = _KINDS.get(value.id, str) if isinstance(value, ast.Name) else str
        elif name == "nargs" and isinstance(value, ast.Name) and value.id == "REMAINDER":
            kept[name] = argparse.REMAINDER
        elif name in ("default", "choices", "help", "metavar", "dest", "nargs", "const", "required"):
            try:
                kept[name] = ast.literal_eval(value)
            except ValueError:  # it is worked out
                if name in ("dest", "nargs"):
                    raise Unreadable(f"{names[0]} has a {name} that is worked out") from None
                partly = True
        else:
            raise Unreadable(f"{names[0]} has {name}")
    if variable == "check_env":
        kept["action"] = "store_true"
    added = made.add_argument(*names, **kept)
    # As torch.distributed.argparse_util has it.
    if variable is not None and (said := os.environ.get(f"{_VARIABLE}{added.dest.upper()}")) is not None:
        added.default = said if variable == "env" else bool(int(said))
        added.required = False
    if partly:
        made.in_part.add(added.dest)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise Unreadable(f"{ast.unparse(node)} is worked out") from error
