"""Does a line look for a file again and again until it is there? The source's syntax tells, and never its words.

A loop that looks, pauses, and ends by what it has seen is a wait: ``while`` or
``for``, with the look in it or in a function that hands the answer on to it.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from types import FrameType
from typing import Literal

from ddpcheck.vocabulary.frame_lines import line_of

HANDED_ON = 4
"""How many functions may hand an answer on to the loop that asks for it."""
MOST = 200
"""Files whose syntax is kept."""

Place = Literal["waits", "hands on", "neither"]
Loop = ast.While | ast.For | ast.AsyncFor

_PAUSES = re.compile(r"sleep|wait|pause|backoff")
"""In the name of a function that lets time go by."""
_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_ESCAPE = re.compile(r"\\[^\n]")

_trees: dict[str, ast.Module | None] = {}
_places: dict[tuple[str, int, str], Place] = {}


def is_wait(frame: FrameType | None, called: str) -> bool:
    """Whether the line at which this frame calls a function of this name waits for what that answers."""
    for _ in range(HANDED_ON):
        if frame is None:
            return False
        code = frame.f_code
        place = _place(code.co_filename, line_of(frame), called)
        if place != "hands on":
            return place == "waits"
        called, frame = code.co_name, frame.f_back
    return False


def _place(file: str, line: int, called: str) -> Place:
    key = (file, line, called)
    known = _places.get(key)
    if known is None:
        if len(_places) > 100 * MOST:
            return "neither"
        try:
            known = place_of(_tree(file), line, called)
        except RecursionError:  # an expression of a thousand terms
            known = "neither"
        _places[key] = known
    return known


def _tree(file: str) -> ast.Module | None:
    if file not in _trees and len(_trees) < MOST:
        # Python warns of odd escapes in strings when it reads them; here nobody asks what a string says.
        text = _ESCAPE.sub("__", "".join(linecache.getlines(file)))
        try:
            _trees[file] = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            _trees[file] = None
    return _trees.get(file)


def place_of(tree: ast.Module | None, line: int, called: str) -> Place:
    """What becomes of the answer of a function that is called at a line."""
    found = [above for above in _calls(tree, line, []) if not _pauses(above[-1])] if tree is not None else []
    named = [above for above in found if _name(above[-1]) == called]
    places = [_of_call(above) for above in named or found]
    return "waits" if "waits" in places else "hands on" if "hands on" in places else "neither"


def _calls(node: ast.AST, line: int, above: list[ast.AST]) -> Iterator[list[ast.AST]]:
    """Each call that stands at this line, below all that it is a part of."""
    above = [*above, node]
    if isinstance(node, ast.Call):
        yield above
    for child in ast.iter_child_nodes(node):
        last = getattr(child, "end_lineno", None)
        if last is None or child.lineno <= line <= last:  # type: ignore[attr-defined]
            yield from _calls(child, line, above)


def _of_call(above: list[ast.AST]) -> Place:
    look = above[-1]
    for node in reversed(above[:-1]):
        if isinstance(node, ast.Lambda | ast.Return):
            return "hands on"
        if isinstance(node, _FUNCTIONS):
            break
        if isinstance(node, Loop) and _waits(node, look):
            return "waits"
    return "neither"


def _waits(loop: Loop, look: ast.AST) -> bool:
    """Whether a loop pauses, and what has been seen ends it."""
    inside = [node for part in loop.body for node in _within(part)]
    if isinstance(loop, ast.While):
        inside += _within(loop.test)
    if look not in inside:  # it is what the loop goes over, or what follows it
        return False
    names = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value and _is_in(look, node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }

    def tells(test: ast.expr) -> bool:
        return any(node is look or (isinstance(node, ast.Name) and node.id in names) for node in ast.walk(test))

    pauses = any(map(_pauses, inside))
    if isinstance(loop, ast.While) and tells(loop.test):
        return pauses or all(_is_clock(node) for node in inside if isinstance(node, ast.Call) and node is not look)
    return pauses and any(
        isinstance(node, ast.If) and tells(node.test) and any(map(_ends, (node.body, node.orelse))) for node in inside
    )


def _ends(branch: list[ast.stmt]) -> bool:
    """Whether a branch of a loop's body leaves it, or pauses and begins anew."""
    inside = [node for part in branch for node in _within(part)]
    if any(isinstance(node, ast.Break | ast.Return) for node in inside):
        return True
    return any(isinstance(node, ast.Continue) for node in inside) and any(map(_pauses, inside))


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """What is done where this stands: not what functions do that are only made here."""
    yield node
    if not isinstance(node, _FUNCTIONS):
        for child in ast.iter_child_nodes(node):
            yield from _within(child)


def _is_in(node: ast.AST, whole: ast.AST) -> bool:
    return any(one is node for one in ast.walk(whole))


def _name(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _pauses(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and bool(_PAUSES.search(_name(node).lower()))


def _is_clock(node: ast.AST) -> bool:
    return _name(node) in _CLOCKS or _name(node).endswith(("Error", "Exception"))
