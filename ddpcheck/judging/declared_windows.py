"""Does the program say that a step takes several micro-batches? By what it divides the loss by, and its name."""

from __future__ import annotations

import ast
import math
import re

from ddpcheck import evidence as ev
from ddpcheck.judging.control_flow import tree_of
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank

_NAMES = re.compile(
    r"(?i)accum|grad_acc|micro_?batches|micro_?batch_?count|micro_?steps|num_micro|n_micro"
    r"|^(num_|n_)acc$|^(num_|n_)?acc_?(steps|iters?|num)$|^gas$|^ga_?steps$|(?-i:^(ACC|GA)$)"  # "acc" may be a sum
)
_OF_CONTENTS = re.compile(r"(?i)size|shape|numel|token|sample|elem|length|valid|label|target|mask|loss|^sum$")
"""What a batch holds: a sum is divided by that to be a mean, however many batches go into a step."""


def micro_batches(rank: Rank, window: ev.Window) -> int:
    """How many micro-batches a step is to be made of; 0 where the program does not say so."""
    divisor = divided_by(window)
    return divisor if divisor and _divides_by_name(rank, window.backward_site) else 0


def by_optimizer(rank: Rank) -> dict[int, list[ev.Window]]:
    """The windows of each optimizer of a rank, by its number."""
    return by_key((window.optimizer, window) for window in rank.of(ev.Window))


def divided_by(window: ev.Window) -> int:
    """What the last loss was divided by, where that is a whole number above one; else 0."""
    value = window.divisor if window.divisor is not None and math.isfinite(window.divisor) else 0.0
    divisor = round(value)
    return divisor if divisor >= 2 and abs(value - divisor) <= 1e-3 * divisor else 0


def _divides_by_name(rank: Rank, site: int) -> bool:
    """Whether a function that has led to a backward() divides by something that is called so, or was given that."""
    for called in rank.process.calls_to(site):
        tree = tree_of(rank.process.body(called), called.first, called.function)
        given = _given(tree) if tree is not None else {}
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
                divisor = node.right if isinstance(node, ast.BinOp) else node.value
                own = _names(divisor)
                names = [*own, *(n for one in own for n in given.get(one, ()))]
                if any(map(_NAMES.search, names)) and not any(map(_OF_CONTENTS.search, names)):
                    return True
    return False


def _given(tree: ast.AST) -> dict[str, list[str]]:
    """By variable, the names in what it is given."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).extend(_names(node.value))
    return found


def _names(expression: ast.expr) -> list[str]:
    found = []
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
    return found
