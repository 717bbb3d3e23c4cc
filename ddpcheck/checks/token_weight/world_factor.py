"""Where the text of some functions divides or multiplies the loss by the number of ranks."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator

from ddpcheck.vocabulary.model import CallSite, Struct

_NUMBER_OF_RANKS = re.compile(r"(?i)world_?size|num_replicas|num_processes|n(um)?_?gpus|n(um)?_?ranks")
_CONVERSIONS = ("int", "float")

_Fits = Callable[[ast.operator, bool, bool], bool]


class Text(Struct, frozen=True):
    """A function as it was when the program ran."""

    file: str
    first: int
    """Its first line in the file."""
    function: str
    text: str


def divisions(functions: Iterable[Text]) -> list[CallSite]:
    """Every division by the number of ranks of what backward() is called on."""
    return _scalings(functions, lambda op, left, right: isinstance(op, ast.Div) and right)


def products(functions: Iterable[Text]) -> list[CallSite]:
    """Every product with the number of ranks of what backward() is called on."""
    return _scalings(functions, lambda op, left, right: isinstance(op, ast.Mult) and (left or right))


def _scalings(functions: Iterable[Text], fits: _Fits) -> list[CallSite]:
    try:
        return list(_found(list(functions), fits))
    # A source that Python has compiled, and whose tree is too deep to go through.
    except (ValueError, RecursionError, MemoryError):
        return []


def _found(functions: list[Text], fits: _Fits) -> Iterator[CallSite]:
    """Each line once, however many of the texts have it."""
    trees = [(one, tree) for one in functions if (tree := _parsed(one.text)) is not None]
    losses = {name for _, tree in trees for name in _gone_back_from(tree)}
    makers = {name for _, tree in trees for name in _called_for(tree, losses)}
    seen: set[tuple[str, int]] = set()
    for one, tree in trees:
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_ranks(node.value, set())]
        ranks = {name.id for node in assigned for name in node.targets if isinstance(name, ast.Name)}
        for statement in ast.walk(tree):
            if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)):
                continue
            place = (one.file, one.first + statement.lineno - 1)
            function = _around(tree, statement) or one.function
            if place in seen or not (_is_of(statement, losses) or function in makers):
                continue
            if any(fits(op, _is_ranks(left, ranks), _is_ranks(right, ranks)) for op, left, right in _in(statement)):
                seen.add(place)
                yield CallSite(file=place[0], line=place[1], function=function)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a part of a statement, such as a lambda
        return None


def _gone_back_from(tree: ast.AST) -> Iterator[str]:
    """The names in what backward() is called on, or with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            for part in (node.func.value, *node.args):
                yield from (name.id for name in ast.walk(part) if isinstance(name, ast.Name))


def _called_for(tree: ast.AST, losses: set[str]) -> Iterator[str]:
    """The functions that such a name is set by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_of(node, losses):
            for call in ast.walk(node.value):
                if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
                    yield call.func.id if isinstance(call.func, ast.Name) else call.func.attr


def _is_of(statement: ast.stmt, losses: set[str]) -> bool:
    """Whether a statement sets one of these names, or goes back from something."""
    if isinstance(statement, ast.Expr):
        return any(True for _ in _gone_back_from(statement))
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(one, ast.Name) and one.id in losses for one in targets)


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
    if isinstance(node, ast.Call):
        converts = isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS
        return any(_is_ranks(one, names) for one in node.args) if converts else _is_ranks(node.func, names)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and bool(_NUMBER_OF_RANKS.search(str(node.slice.value)))
    if isinstance(node, ast.Name):
        return node.id in names or bool(_NUMBER_OF_RANKS.search(node.id))
    return isinstance(node, ast.Attribute) and bool(_NUMBER_OF_RANKS.search(node.attr))
