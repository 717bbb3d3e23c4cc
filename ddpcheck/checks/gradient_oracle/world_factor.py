"""Where the text of some functions divides or multiplies something by the number of ranks."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ddpcheck.vocabulary.model import CallSite

_NUMBER_OF_RANKS = re.compile(r"(?i)world_?size|num_replicas|num_processes|n(um)?_?gpus|n(um)?_?ranks")


class Text(NamedTuple):
    """A function as it was when the program ran."""

    file: str
    first: int
    """Its first line in the file."""
    function: str
    text: str


class Scaling(NamedTuple):
    """A division by the number of ranks, or a product with it."""

    where: CallSite
    of_loss: bool
    """Its statement names a loss."""


def divisions(functions: Iterable[Text]) -> list[Scaling]:
    """Every division by the number of ranks."""
    return [one for one, op, _, right in _operations(functions) if isinstance(op, ast.Div) and right]


def products(functions: Iterable[Text]) -> list[Scaling]:
    """Every product with the number of ranks."""
    return [one for one, op, left, right in _operations(functions) if isinstance(op, ast.Mult) and (left or right)]


def _operations(functions: Iterable[Text]) -> Iterator[tuple[Scaling, ast.operator, bool, bool]]:
    """Each with whether its left and its right side is the number of ranks; a line of several texts comes once."""
    seen: set[tuple[str, int]] = set()
    for one in functions:
        try:
            tree = ast.parse(textwrap.dedent(one.text))
        except (SyntaxError, ValueError, RecursionError):  # a part of a statement, such as a lambda
            continue
        names = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and _is_ranks(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for statement in ast.walk(tree):
            if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)):
                continue
            place = (one.file, one.first + statement.lineno - 1)
            told = Scaling(
                CallSite(file=place[0], line=place[1], function=_around(tree, statement) or one.function),
                "loss" in ast.unparse(statement).lower(),
            )
            for op, left, right in _in(statement):
                sides = (_is_ranks(left, names), _is_ranks(right, names))
                if any(sides) and place not in seen:
                    seen.add(place)
                    yield told, op, *sides


def _around(tree: ast.AST, statement: ast.stmt) -> str:
    """The name of the innermost function that a statement is in."""
    around = [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= statement.lineno <= (node.end_lineno or node.lineno)
    ]
    return max(around, default=(0, ""))[1]


def _in(statement: ast.stmt) -> Iterator[tuple[ast.operator, ast.expr, ast.expr]]:
    if isinstance(statement, ast.AugAssign):
        yield statement.op, statement.target, statement.value
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp):
            yield node.op, node.left, node.right


def _is_ranks(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is the number of ranks, whatever way it is asked for, or a product with it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_ranks(node.left, names) or _is_ranks(node.right, names)
    if isinstance(node, ast.Name) and node.id in names:
        return True
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return bool(_NUMBER_OF_RANKS.search(ast.unparse(node)))
    return False
