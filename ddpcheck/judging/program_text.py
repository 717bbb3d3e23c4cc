"""What the text of the program says, as far as it is on record: its assignments, calls and functions, without running.

The script itself is on record as a whole; of other files, the functions that have led to something that was recorded.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.model import CallSite


class Said(NamedTuple):
    """A part of the program's text, and its line."""

    node: ast.AST
    where: CallSite


def functions(process: Process) -> set[str]:
    """The names of all functions and methods that are defined there."""
    return {one.node.name for one in _every(process) if isinstance(one.node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def calls(process: Process, name: str) -> list[Said]:
    """The calls of a function by its name, whatever it is an attribute of."""
    return [one for one in _every(process) if isinstance(one.node, ast.Call) and _name(one.node.func) == name]


def assignments(process: Process, attribute: str) -> list[Said]:
    """The statements that set an attribute of an object."""
    found = []
    for one in _every(process):
        node = one.node
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else targets
        named = any(isinstance(target, ast.Attribute) and target.attr == attribute for target in targets)
        by_name = (
            isinstance(node, ast.Call)
            and _name(node.func) == "setattr"
            and any(isinstance(one, ast.Constant) and one.value == attribute for one in node.args)
        )
        if named or by_name:
            found.append(one)
    return found


def settings(process: Process, name: str) -> list[Said]:
    """The statements that set a variable."""
    found = []
    for one in _every(process):
        node = one.node
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else targets
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found.append(one)
    return found


def loops(process: Process) -> list[Said]:
    """The `for` loops."""
    return [one for one in _every(process) if isinstance(one.node, (ast.For, ast.AsyncFor))]


def calls_with(process: Process, keyword: str) -> list[Said]:
    """The calls that are given something under a name."""
    return [one for one in _every(process) if given(one.node, keyword) is not None]


def holds(one: Said, line: CallSite) -> bool:
    """Whether a line stands within a statement, behind its first line."""
    node = one.node
    assert isinstance(node, ast.stmt)
    last = one.where.line + (node.end_lineno or node.lineno) - node.lineno
    return one.where.file == line.file and one.where.line < line.line <= last


def given(call: ast.AST, name: str) -> ast.expr | None:
    """What a call is given under a name; None where it is not."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return next((one.value for one in keywords if one.arg == name), None)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _every(process: Process) -> Iterator[Said]:
    """Every node of all text on record, each line once."""
    whole = {file for file, first, function, _ in process.texts() if function == "<module>"}
    for file, first, function, body in process.texts():
        if function == "<module>" or file not in whole:
            for node, line, inside in _nodes(body, 1 if function == "<module>" else first):
                yield Said(node, CallSite(file=file, line=line, function=inside))


@lru_cache(maxsize=256)
def _nodes(body: str, first: int) -> tuple[tuple[ast.AST, int, str], ...]:
    try:
        tree = ast.parse(textwrap.dedent(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_within(tree, first - 1, "<module>"))


def _within(node: ast.AST, before: int, function: str) -> Iterator[tuple[ast.AST, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.expr)):
            yield child, child.lineno + before, function
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        yield from _within(child, before, inside)
