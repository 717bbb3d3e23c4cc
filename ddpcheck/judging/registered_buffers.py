"""Which line of a class's constructor registers a buffer, as far as its text says."""

from __future__ import annotations

import ast

from ddpcheck.judging.control_flow import tree_of
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.model import CallSite


def registering_line(process: Process, constructor: int, name: str) -> CallSite | None:
    """The one `self.register_buffer("name", …)` of a constructor; None where there is none, or several.

    The text is what the process has read when it ran: it may be another one in the file by now.
    """
    sites = process.calls_to(constructor)
    if not sites:
        return None
    site = sites[-1]
    tree = tree_of(process.body(site), site.first, site.function)
    if tree is None:
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _registers(node, name)]
    if len(found) != 1:
        return None
    return CallSite(file=site.file, line=found[0].lineno, function=site.function)


def _registers(call: ast.Call, name: str) -> bool:
    function = call.func
    if not (isinstance(function, ast.Attribute) and function.attr == "register_buffer"):
        return False
    if not (isinstance(function.value, ast.Name) and function.value.id == "self"):
        return False
    named = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "name")]
    return any(isinstance(one, ast.Constant) and one.value == name for one in named)
