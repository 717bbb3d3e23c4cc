"""Which function a thread has called and stands in, read from its instruction: whether it is one that waits.

A host that stands still may be asleep, or read a file, and come on later. One
that stands in ``loss.item()`` waits for its device, and for nothing else.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

FOR_THE_DEVICE = frozenset(
    {
        "item",
        "cpu",
        "synchronize",
        "_cuda_synchronize",
        "_accelerator_synchronizeDevice",
    }
)
"""Functions in C that wait for a device, and do nothing on the host that takes long.

``tolist``, ``nonzero`` and ``to`` may work on many numbers, ``wait`` waits for anything, and ``float``, ``bool`` and
the truth of a value are asked of anything.
"""

_NAMING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_SUPER_ATTR")
_NOTHING = frozenset({"CACHE", "KW_NAMES", "NOP", "EXTENDED_ARG"})


def awaited(code: CodeType, instruction: int) -> str:
    """The function that waits for a device in which the code stands at an instruction; empty for any other."""
    name = called(code, instruction)
    return name if name in FOR_THE_DEVICE else ""


@lru_cache(maxsize=64)
def called(code: CodeType, instruction: int) -> str:
    """The name of the function that is called at an instruction; empty where there is none, or it cannot be told."""
    before: list[dis.Instruction] = []
    for one in dis.get_instructions(code):
        if one.offset > instruction:
            break
        if one.opname not in _NOTHING:
            before.append(one)
    if not before or instruction < 0:
        return ""
    last = before.pop()
    given = _given(last)
    if before and before[-1].opname == "PRECALL":  # of Python 3.11: the first half of the call
        before.pop()
    while given is not None and before:
        if given == 0:
            named = before[-2] if before[-1].opname == "PUSH_NULL" and len(before) > 1 else before[-1]
            return str(named.argval) if named.opname in _NAMING else ""
        given = _without(given, before.pop())
    return ""


def _given(call: dis.Instruction) -> int | None:
    """How many values lie on the stack above the function that an instruction calls; None for one that calls none."""
    if call.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD"):
        return call.arg or 0
    if call.opname in ("CALL_KW", "CALL_FUNCTION_KW"):
        return (call.arg or 0) + 1
    return None


def _without(given: int, one: dis.Instruction) -> int | None:
    """How many of them were there before an instruction; None where the way to it is not one alone."""
    if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
        return None
    argument = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
    return given - dis.stack_effect(one.opcode, argument, jump=False)
