"""What a function's own text says of a line: the conditions and loops around it, and the ways to leave these early."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from ddpcheck.vocabulary.model import Struct

Kind = Literal["condition", "loop", "except", "break", "return", "continue"]

_ABOUT_RANKS = re.compile(
    r"(?i)(?<![a-z])rank(?![a-z])|main_process|is_main|is_master|is_chief|is_leader|is_primary|global_zero|rank_zero"
    r"|process_index|process_zero"
)
_ALIKE = re.compile(r"(?i)__name__|is_initialized|is_available|world_size|type_checking|(?<![a-z])distributed(?![a-z])")
"""Conditions that every rank of a group judges alike: whether there is a group at all."""
_SETTINGS = {"args", "cfg", "config", "conf", "opt", "opts", "hparams", "settings", "FLAGS"}
"""Names that hold what all ranks were started with."""
_LONGEST = 60


class Branch(Struct, frozen=True, kw_only=True):
    """A place at which one rank may have gone another way than the next."""

    kind: Kind
    line: int
    """Of the condition; of a `break` without one, its own."""
    text: str
    """The line of the condition, loop or handler; empty for an exit without a condition."""
    of: int = 0
    """For a way to leave early: the line of the loop, or of the function."""
    otherwise: bool = False
    """It is what is done where the condition does not hold."""
    about_ranks: bool = False
    """The condition names a rank: it is meant to differ between them."""

    def __str__(self) -> str:
        if self.kind in ("condition", "loop", "except"):
            return f"the `else` of `{self.text}`" if self.otherwise else f"`{self.text}`"
        return f"the `{self.kind}` under `{self.text}`" if self.text else f"the `{self.kind}`"


class Step(Struct, frozen=True, kw_only=True):
    """One compound statement around a line, and the arm that the line is in."""

    line: int
    arm: str
    """``body``, ``orelse``, ``handler 2``, ``finalbody``, ``case 1``."""
    kind: Literal["if", "loop", "try", "with", "match"]
    branch: Branch | None = None
    """The arm as a place where ways part; None for what everybody goes through."""
    exits: tuple[Branch, ...] = ()
    """Of a loop: the ways to leave it early, and its own condition; of a try, the handlers that catch."""
    skips: tuple[Branch, ...] = ()
    """Of a loop: its `continue` statements."""


class Flow:
    """A function's text, with its lines numbered as in its file."""

    def __init__(self, tree: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module, lines: list[str], first: int) -> None:
        self._tree = tree
        self._lines = lines
        self._first = first

    def around(self, line: int) -> tuple[Step, ...]:
        """The compound statements around a line, the outermost first."""
        return tuple(self._around(self._tree.body, line))

    def returns(self, line: int) -> tuple[Branch, ...]:
        """The `return` statements by which the function may have been left before it came to a line, or came back."""
        if isinstance(self._tree, ast.Module):
            return ()
        outermost = self.around(line)[:1]
        again = outermost[0] if outermost and outermost[0].kind == "loop" else None
        last = max(line, self._end_of(again.line) if again is not None else 0)
        return tuple(
            exit for exit in self._exits(self._tree.body, ast.Return, "return", self._tree.lineno)
            if exit.line <= last and exit.text
        )  # fmt: skip

    def shares(self) -> tuple[int, ...]:
        """The lines at which a list is cut from the rank on: ``order[rank::world_size]``."""
        cuts = [node for node in ast.walk(self._tree) if isinstance(node, ast.Subscript)]
        return tuple(
            node.lineno
            for node in cuts
            if isinstance(node.slice, ast.Slice) and node.slice.lower is not None
            and _ABOUT_RANKS.search(re.sub(r"\w*per_rank\w*", "", ast.unparse(node.slice.lower))) is not None
        )  # fmt: skip

    def last_return(self) -> int | None:
        """The line of the last `return` with a value, where the function has one."""
        found = [node.lineno for node, _ in _walk(self._tree.body, (), of_loops=False)
                 if isinstance(node, ast.Return) and node.value is not None]  # fmt: skip
        return max(found, default=None)

    # --- the tree

    def _around(self, body: list[ast.stmt], line: int) -> Iterator[Step]:
        for node in body:
            if not node.lineno <= line <= (node.end_lineno or node.lineno):
                continue
            for arm, inside in _arms(node):
                if inside and inside[0].lineno <= line <= (inside[-1].end_lineno or 0):
                    step = self._step(node, arm)
                    if step is not None:
                        yield step
                    yield from self._around(inside, line)
                    return
            if (within := self._in_expression(node)) is not None:
                yield within
            return

    def _in_expression(self, node: ast.stmt) -> Step | None:
        """A condition on the rank in a statement itself: ``rank == 0 and barrier()``, ``f(x) if rank == 0 else x``."""
        value = getattr(node, "value", None)
        both = value.values[0] if isinstance(value, ast.BoolOp) else None
        test = value.test if isinstance(value, ast.IfExp) else both
        if test is None or _ABOUT_RANKS.search(ast.unparse(test)) is None:
            return None
        return Step(line=node.lineno, arm="expression", kind="if", branch=self._branch("condition", node, test))

    def _step(self, node: ast.stmt, arm: str) -> Step | None:
        if isinstance(node, ast.If):
            return Step(line=node.lineno, arm=arm, kind="if", branch=self._condition(node, otherwise=arm == "orelse"))
        if isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
            if arm != "body":
                return None
            exits = list(self._exits(node.body, ast.Break, "break", node.lineno))
            if isinstance(node, ast.While) and not (isinstance(node.test, ast.Constant) and node.test.value):
                exits.append(self._branch("loop", node, node.test))
            elif isinstance(node, (ast.For, ast.AsyncFor)) and not _is_counted(node.iter):
                exits.append(self._branch("loop", node))
            skips = tuple(self._exits(node.body, ast.Continue, "continue", node.lineno))
            return Step(line=node.lineno, arm=arm, kind="loop", exits=tuple(exits), skips=skips)
        if isinstance(node, ast.Try):
            if arm.startswith("handler"):
                handler = node.handlers[int(arm.split()[1])]
                return Step(line=node.lineno, arm=arm, kind="try", branch=self._branch("except", handler))
            caught = tuple(self._branch("except", h) for h in node.handlers if not _is_passed_on(h))
            return Step(line=node.lineno, arm=arm, kind="try", exits=caught if arm == "body" else ())
        if isinstance(node, ast.Match):
            pattern = node.cases[int(arm.split()[1])].pattern
            branch = self._branch("condition", pattern, node.subject)
            return Step(line=node.lineno, arm=arm, kind="match", branch=branch)
        return None

    def _exits(self, body: list[ast.stmt], kind: type[ast.stmt], name: Kind, of: int) -> Iterator[Branch]:
        """Statements of a kind that leave a loop or a function, and not one inside of it."""
        for node, conditions in _walk(body, (), of_loops=kind is not ast.Return):
            if not isinstance(node, kind):
                continue
            nearest = conditions[-1] if conditions else None
            if isinstance(nearest, ast.If):
                if not self._is_alike(nearest.test):
                    known = self._condition(nearest)
                    assert known is not None
                    about = known.about_ranks
                    yield Branch(kind=name, line=known.line, text=known.text, of=of, about_ranks=about)
            elif isinstance(nearest, ast.ExceptHandler):
                yield Branch(kind=name, line=nearest.lineno, text=self._text(nearest.lineno), of=of)
            else:
                yield Branch(kind=name, line=node.lineno, text="", of=of)

    def _condition(self, node: ast.If, otherwise: bool = False) -> Branch | None:
        """A condition; ``otherwise`` for what is done where it does not hold."""
        if self._is_alike(node.test):
            return None
        found = self._branch("condition", node, node.test)
        # "rank == 0 or …" holds on others as well, and so may the opposite of "rank == 0 and …".
        open_to_others = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) == otherwise
        return replace(found, otherwise=otherwise, about_ranks=found.about_ranks and not open_to_others)

    def _branch(
        self, kind: Kind, node: ast.stmt | ast.ExceptHandler | ast.pattern, test: ast.expr | None = None
    ) -> Branch:
        about = test is not None and _ABOUT_RANKS.search(ast.unparse(test)) is not None
        return Branch(kind=kind, line=node.lineno, text=self._text(node.lineno), about_ranks=about)

    def _is_alike(self, test: ast.expr) -> bool:
        text = ast.unparse(test)
        if _ABOUT_RANKS.search(text) is not None:
            return False
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        told = all(name in _SETTINGS or name.isupper() for name in names)
        return _ALIKE.search(text) is not None or (bool(names) and told)

    def _text(self, line: int) -> str:
        text = self._lines[line - self._first].split("  #")[0].strip()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def _end_of(self, line: int) -> int:
        found = [n.end_lineno or 0 for n in ast.walk(self._tree) if isinstance(n, ast.stmt) and n.lineno == line]
        return max(found, default=0)


@lru_cache(maxsize=256)
def flow_of(body: str, first: int, function: str) -> Flow | None:
    """The text of a function, read; None where it cannot be, or is not that function's."""
    tree = tree_of(body, first, function)
    return Flow(tree, body.split("\n"), 1 if isinstance(tree, ast.Module) else first) if tree is not None else None


def tree_of(body: str, first: int, function: str) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | None:
    """The syntax of a function's text, with lines numbered as in its file; None where it is not that function's."""
    indented = body[:1] in (" ", "\t")
    try:
        tree = ast.parse(f"if 1:\n{body}" if indented else body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if function == "<module>":
        return tree
    found = tree.body[0].body[0] if indented and isinstance(tree.body[0], ast.If) else next(iter(tree.body), None)
    if not isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) or found.name != function:
        return None
    ast.increment_lineno(found, first - 1 - indented)
    return found


_OTHERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements whose body is run elsewhere, or at another time."""


def _arms(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for name in ("body", "orelse", "finalbody"):
        arm = getattr(node, name, None)
        if isinstance(arm, list) and arm and not isinstance(node, _OTHERS):
            yield name, arm
    for place, handler in enumerate(getattr(node, "handlers", ())):
        yield f"handler {place}", handler.body
    for place, case in enumerate(getattr(node, "cases", ())):
        yield f"case {place}", case.body


Around = tuple[ast.AST, ...]


def _walk(body: list[ast.stmt], conditions: Around, of_loops: bool) -> Iterator[tuple[ast.stmt, Around]]:
    """Every statement, with the conditions and handlers around it; without those of functions inside, and of loops."""
    for node in body:
        yield node, conditions
        loop = isinstance(node, (ast.While, ast.For, ast.AsyncFor))
        for arm, inside in _arms(node):
            if loop and of_loops and arm == "body":
                continue
            more: Around = (node,) if isinstance(node, ast.If) else ()
            if arm.startswith("handler"):
                more = (node.handlers[int(arm.split()[1])],) if isinstance(node, ast.Try) else ()
            yield from _walk(inside, conditions + more, of_loops)


def _is_passed_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises again, or is for what asks the program to end."""
    raises = any(isinstance(node, ast.Raise) for statement in handler.body for node in ast.walk(statement))
    return raises or (handler.type is not None and "KeyboardInterrupt" in ast.unparse(handler.type))


def _is_counted(over: ast.expr) -> bool:
    """Whether a loop runs as often as the program was told to: by numbers, settings or constants alone."""
    if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("range", "trange")):
        return isinstance(over, (ast.Tuple, ast.List))
    names = {node.id for one in over.args for node in ast.walk(one) if isinstance(node, ast.Name)}
    called = any(isinstance(node, ast.Call) for one in over.args for node in ast.walk(one))
    told = (name in _SETTINGS or name.isupper() or re.search("epoch|step|iter", name) for name in names)
    return not called and all(told)
