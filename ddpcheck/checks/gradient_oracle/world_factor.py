"""Whether the text of some functions divides or multiplies something by the number of ranks."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator

_NUMBER_OF_RANKS = re.compile(r"(?i)world_?size|num_replicas|num_processes|n(um)?_?gpus|n(um)?_?ranks")


def divides(functions: Iterable[str]) -> bool:
    """Whether one of them has a division by the number of ranks."""
    return any(_is_ranks(right, names) for names, op, _, right in _operations(functions) if isinstance(op, ast.Div))


def multiplies(functions: Iterable[str]) -> bool:
    """Whether one of them has a product with the number of ranks."""
    return any(
        _is_ranks(left, names) or _is_ranks(right, names)
        for names, op, left, right in _operations(functions)
        if isinstance(op, ast.Mult)
    )


def _operations(functions: Iterable[str]) -> Iterator[tuple[set[str], ast.operator, ast.expr, ast.expr]]:
    """Each with the names that stand for the number of ranks in its function."""
    for text in functions:
        try:
            tree = ast.parse(textwrap.dedent(text))
        except SyntaxError:  # a part of a statement, such as a lambda
            continue
        names = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and _is_ranks(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp):
                yield names, node.op, node.left, node.right
            elif isinstance(node, ast.AugAssign):
                yield names, node.op, node.target, node.value


def _is_ranks(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is the number of ranks, whatever way it is asked for, or a product with it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_ranks(node.left, names) or _is_ranks(node.right, names)
    if isinstance(node, ast.Name) and node.id in names:
        return True
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return bool(_NUMBER_OF_RANKS.search(ast.unparse(node)))
    return False
