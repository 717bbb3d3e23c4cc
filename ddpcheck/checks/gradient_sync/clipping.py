"""Where gradients are clipped before a step, as far as the text of the step's own function says."""

from __future__ import annotations

import ast

from ddpcheck.judging.control_flow import tree_of
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite

_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_gradients")


def before(rank: Rank, step: int, backward: int) -> CallSite | None:
    """The line that clips between a backward() and a step of one function; None where it is not just one."""
    sites = rank.process.calls_to(step)
    if not sites:
        return None
    site = sites[-1]
    tree = tree_of(rank.process.body(site), site.first, site.function)
    if tree is None:
        return None
    begun = rank.where(backward)
    same = begun is not None and (begun.file, begun.function) == (site.file, site.function)
    first = begun.line if begun is not None and same and begun.line < site.line else 0
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in _CLIPS}
    found = [line for line in lines if first < line < site.line]
    return CallSite(file=site.file, line=found[0], function=site.function) if len(found) == 1 else None


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
