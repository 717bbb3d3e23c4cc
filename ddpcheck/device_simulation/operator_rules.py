"""What torch checks in front of its CUDA kernels, operator by operator, read from torch's own table of operators.

torch generates the device checks of its CUDA kernels from a table, and every
build carries that table. So the rules are those of the installed version, and
nothing is copied that could fall behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Check = Literal["same", "operands", "lists", "none"]
"""What an operator asks of its tensors: one device; that, CPU scalars aside; that at each place of lists; nothing."""


@dataclass(frozen=True)
class Operator:
    """One operator of the table."""

    check: Check
    method: str
    """The name by which torch calls its kernel in an error."""


_ENTRY = re.compile(r"^- func: (?P<name>[\w.]+)\((?P<rest>.*)$", re.MULTILINE)
_DEVICE_CHECK = re.compile(r"^  device_check: NoCheck[ \t]*(?:#(?P<why>.*))?$", re.MULTILINE)
_STRUCTURED = re.compile(r"^  structured(?:_delegate)?: ", re.MULTILINE)


class NoTable(RuntimeError):
    """The installed torch lacks its table of operators."""


@lru_cache(maxsize=1)
def operators() -> dict[str, Operator]:
    """All operators of the installed torch, by name with overload (``add.Tensor``, ``mm``).

    Raises NoTable where the installation has no such table.
    """
    spec = find_spec("torchgen")
    found = [Path(place) / "packaged/ATen/native/native_functions.yaml" for place in _places(spec)]
    for path in found:
        if path.is_file():
            return parsed(path.read_text(encoding="utf-8"))
    raise NoTable(
        "simulated_devices() reads the rules of devices from the table of operators that torch installs with itself "
        "(torchgen/packaged/ATen/native/native_functions.yaml), and this installation has none: install torch from "
        "its wheel"
    )


def _places(spec: object) -> list[str]:
    return list(getattr(spec, "submodule_search_locations", None) or [])


def parsed(table: str) -> dict[str, Operator]:
    """The operators of a table's text."""
    starts = list(_ENTRY.finditer(table))
    ends = [match.start() for match in starts[1:]] + [len(table)]
    result = {}
    for match, end in zip(starts, ends, strict=True):
        name, block = match["name"], table[match.end() : end]
        result[name] = Operator(_check_of(block), _method_of(name, structured=bool(_STRUCTURED.search(block))))
    return result


def _check_of(block: str) -> Check:
    unchecked = _DEVICE_CHECK.search(block)
    if not unchecked:
        return "same"
    why = unchecked["why"] or ""
    if "foreach" in why:
        return "lists"
    return "operands" if "TensorIterator" in why else "none"


def _method_of(name: str, structured: bool) -> str:
    base, _, overload = name.partition(".")
    out = "_out" if overload == "out" or overload.endswith("_out") else ""
    if structured:
        return f"wrapper_CUDA_{base}{out}{'_' if overload else ''}{overload}"
    return f"wrapper_CUDA_{overload}_{base}{out}"
