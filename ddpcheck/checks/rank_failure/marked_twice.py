"""Gradients that were complete more than once in a backward: the checkpoint() calls in the program's text, and DDP."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import program_text
from ddpcheck.judging.known_errors import MARKED_TWICE, Explained
from ddpcheck.judging.program_text import Said
from ddpcheck.judging.world import Process, Rank
from ddpcheck.judging.world_ending import Failure

_STATIC = "or static_graph=True to DistributedDataParallel, where the graph is the same in every step."
_USED = "or leave out find_unused_parameters=True, where all parameters have a part in the loss."
_NAMES = ("checkpoint", "checkpoint_sequential")


def by_checkpoint(rank: Rank, failure: Failure) -> Explained | None:
    """What the text of the program says of it; None where it has no checkpoint() that may run reentrantly."""
    if failure.raised is None or re.search(MARKED_TWICE, failure.raised.message) is None:
        return None
    calls = list(_reentrant(rank.process))
    if not calls:
        return None
    wrappers = [one for one in rank.of(ev.Wrapped) if one.find_unused]
    again = next(((call, loop) for call in calls if (loop := _same_each_turn(rank.process, call))), None)
    call = again[0] if again is not None else calls[0]
    at = f"{call.where.file}:{call.where.line}"
    seen = f"checkpoint() {_setting(call)} ({at})"
    instead = f"Pass use_reentrant=False to checkpoint() ({at})"
    if again is not None:
        return Explained(
            cause=(
                f"{seen} is given the same module in every turn of `{again[1]}`: each of them is a backward of its "
                "own, and completes the gradients of that module once more"
            ),
            advice=f"{instead}; {_STATIC}",
            where=call.where,
        )
    if wrappers:
        built = rank.where(wrappers[0].site)
        return Explained(
            cause=(
                f"find_unused_parameters=True looks for parameters in the graph, where {seen} hides its own: DDP takes "
                "these for unused and as complete at once, and the backward completes them again"
            ),
            advice=f"{instead}; {_USED}",
            where=call.where,
            proof=(built,) if built is not None else (),
        )
    return Explained(
        cause=(
            f"{seen} runs a part of the backward for itself: a module that is used there more than once, or there and "
            "elsewhere, has its gradients completed more than once"
        ),
        advice=f"{instead}; {_STATIC}",
        where=call.where,
    )


def _reentrant(process: Process) -> Iterator[Said]:
    """The calls of torch's checkpoint() that are not told to do without a backward of their own."""
    own = program_text.functions(process)
    for name in _NAMES:
        for call in program_text.calls(process, name) if name not in own else ():
            setting = program_text.given(call.node, "use_reentrant")
            if not (isinstance(setting, ast.Constant) and setting.value is False):
                yield call


def _setting(call: Said) -> str:
    setting = program_text.given(call.node, "use_reentrant")
    return f"with use_reentrant={ast.unparse(setting)}" if setting is not None else "without use_reentrant"


def _same_each_turn(process: Process, call: Said) -> str:
    """The innermost loop around a call, as text, if what is checkpointed does not depend on its turn."""
    loops = [one for one in program_text.loops(process) if call.node in ast.walk(one.node)]
    if not loops or not isinstance(call.node, ast.Call) or not call.node.args:
        return ""
    loop = min((one.node for one in loops), key=lambda node: sum(1 for _ in ast.walk(node)))
    assert isinstance(loop, (ast.For, ast.AsyncFor))
    given = {node.id for node in ast.walk(call.node.args[0]) if isinstance(node, ast.Name)}
    set_in_it = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if given & set_in_it:
        return ""
    return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}:"
