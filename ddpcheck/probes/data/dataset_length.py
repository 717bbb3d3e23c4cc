"""How many samples a dataset has, where that can be learnt without running any code of the program's that matters.

To ask a dataset of the program's own may take long, draw random numbers or print. So it is only asked where its
``__len__`` does nothing but look at plain values that the object holds.
"""

from __future__ import annotations

import dis
import inspect
from types import FunctionType
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from ddpcheck.probes.recording import signal_exceptions, user_lines

_BUILTIN = (list, tuple, dict, set, frozenset, range, str, bytes, bytearray)
_NUMBERS = (int, float, bool)
_FUNCTIONS = ("len", "int", "min", "max")
_OF_ARRAYS = ("shape", "size")
_CHANGES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "DELETE_", "IMPORT_", "MAKE_FUNCTION", "YIELD")
_DEPTH = 4


def length(dataset: Any, depth: int = _DEPTH) -> int | None:
    """Its length; None where it has none, or where it is not asked."""
    try:
        return _length(dataset, depth)
    except Exception as error:  # it has no length, or none yet
        signal_exceptions.let_through(error)
        return None


def _length(dataset: Any, depth: int) -> int | None:
    kind = type(dataset)
    if kind in _BUILTIN or _is_array(dataset):
        return len(dataset)
    if kind is TensorDataset:
        return int(dataset.tensors[0].shape[0])
    if kind is Subset:
        return length(dataset.indices, depth - 1) if depth else None
    if kind is ConcatDataset:  # it has asked its parts when it was made
        return int(dataset.cumulative_sizes[-1])
    return len(dataset) if depth and _is_harmless(dataset, depth) else None


def _is_array(one: Any) -> bool:
    return type(one) is torch.Tensor or (type(one).__module__ == "numpy" and type(one).__name__ == "ndarray")


def _is_harmless(dataset: Any, depth: int) -> bool:
    """Whether to ask it runs no code that does anything but look."""
    kind: Any = type(dataset)
    asked = inspect.getattr_static(kind, "__len__", None)
    if not isinstance(asked, FunctionType) or kind.__getattribute__ is not object.__getattribute__:
        return False
    held = vars(dataset)
    if not user_lines.is_users(asked.__code__):  # a library's, which may hand the question on
        return not any(user_lines.is_users_file(_file(type(value))) for value in held.values())
    code = asked.__code__
    if any(one.opname.startswith(_CHANGES) for one in dis.get_instructions(code)):
        return False
    cells = [cell.cell_contents for cell in asked.__closure__ or ()]
    return all(_is_plain(value, depth) for value in cells) and all(
        _names_nothing_else(name, kind, held, asked.__globals__, depth) for name in code.co_names
    )


def _names_nothing_else(name: str, kind: type, held: dict[str, Any], around: dict[str, Any], depth: int) -> bool:
    """Whether whatever a ``__len__`` may mean by this name is a plain value, or a function that we know."""
    of_class = inspect.getattr_static(kind, name, None)
    if name in held or of_class is not None:
        return (of_class is None or type(of_class) in _NUMBERS) and _is_plain(held.get(name, of_class), depth)
    if name in around:
        return type(around[name]) in _NUMBERS
    return name in _FUNCTIONS or name in _OF_ARRAYS


def _is_plain(value: Any, depth: int) -> bool:
    return type(value) in _NUMBERS or length(value, depth - 1) is not None


def _file(kind: type) -> str:
    """Where a class is from; no file of the program's where that is not known."""
    code = next((one.__code__ for one in vars(kind).values() if isinstance(one, FunctionType)), None)
    return code.co_filename if code is not None else "<unknown>"
