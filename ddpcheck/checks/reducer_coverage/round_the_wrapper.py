"""Why a step's gradients were not reduced though a wrapper holds the parameters: what the usage and the text show."""

from __future__ import annotations

import re
from collections.abc import Collection

from ddpcheck import evidence as ev
from ddpcheck.judging import program_text
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite, Struct
from ddpcheck.vocabulary.wording import count

LEAVE_NO_SYNC = "Leave no_sync() before the last forward of a step."
AROUND_MICRO_STEPS = (
    "Use `with model.no_sync():` around the micro-steps that are not reduced, and nothing around the last."
)
OF_THE_WRAPPER = "Compute the loss from the output of the wrapper itself: model(x), and not model.module(x)."
IN_FORWARD = "Compute the loss from the output of the wrapper itself; put what a method does into forward()."
LEAVE_THE_FLAG = (
    "Do not set require_backward_grad_sync: while it is left alone, each forward through the wrapper has the next "
    "backward reduced."
)
FEW = 8
"""Steps that are named one by one."""


class Because(Struct, frozen=True, kw_only=True):
    """A likely cause, and what to do about it."""

    cause: str
    advice: str
    where: CallSite | None = None
    proof: tuple[CallSite, ...] = ()


def why(rank: Rank, s: ev.Step, usage: ev.Usage, inner: bool) -> Because:
    """Why the wrapper had not prepared a reduction for a step."""
    if inner:
        return Because(
            cause="an optimizer inside of the model steps during the forward, on gradients of this rank alone",
            advice=(
                "Reduce these gradients by hand (all_reduce, divided by the world size), or step after DDP's "
                "backward()."
            ),
        )
    if usage.sync_flag_site:
        return Because(
            cause="require_backward_grad_sync was changed between forward and backward; DDP reads it in the forward",
            advice=(
                "Set it before the forward of the last micro-step, or better, use `with model.no_sync():` for the "
                "others."
            ),
            where=rank.where(usage.sync_flag_site),
        )
    if usage.no_sync_forwards and (usage.no_sync_forwards >= usage.forwards or not usage.last_armed):
        return Because(
            cause="the last forward before the step ran within no_sync()",
            advice=LEAVE_NO_SYNC,
            where=rank.where(usage.no_sync_site),
        )
    if usage.forwards:
        return _flag_was_off(rank, s, usage)
    if usage.bare_site:
        return _inside(rank, usage)
    return Because(
        cause="the loss came from the bare module, or from a method of it, and not from the wrapper",
        advice=IN_FORWARD,
        where=rank.where(usage.backward_site),
    )


def found(rank: Rank, usage: ev.Usage, bad: Collection[int], good: Collection[int]) -> str:
    """What became of the wrapper before the steps, in words."""
    before = f"before {_steps(bad)}"
    if not usage.forwards:
        others = f"; before {_steps(good)} one did" if good else ""
        return f"{before} no forward went through the wrapper, and the ranks' gradients differ{others}"
    if usage.sync_flag_site and usage.armed:
        what = "the reduction that the forward through the wrapper had prepared was switched off for the backward"
    elif not usage.armed:
        all_ = "the forward" if usage.forwards == 1 else f"each of {count(usage.forwards, 'forward')}"
        what = f"{all_} through the wrapper ran with its reduction switched off"
    else:
        what = f"the last of {count(usage.forwards, 'forward')} through the wrapper ran with its reduction switched off"
    return f"{before} {what}, and the ranks' gradients differ"


def _steps(numbers: Collection[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"step {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"steps {ordered[0]} to {ordered[-1]}"
    if len(ordered) > FEW:
        return f"{len(ordered):,} steps (the first are {', '.join(map(str, ordered[:4]))})"
    return f"steps {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def _flag_was_off(rank: Rank, s: ev.Step, usage: ev.Usage) -> Because:
    """Nobody was within no_sync(): the program has set the flag itself."""
    set_at = [one.where for one in program_text.assignments(rank.process, "require_backward_grad_sync")]
    by_hand = [one.where for one in program_text.calls(rank.process, "prepare_for_backward")]
    forward = rank.where(usage.forward_site)
    at = f" at {set_at[0].file}:{set_at[0].line}" if len(set_at) == 1 else ""
    cause = "require_backward_grad_sync, by which DDP decides in the forward whether to reduce, was False there"
    if set_at:
        cause += f": the program sets it{at}"
    if by_hand:
        cause += (
            f"; the reduction that it means to prepare by itself ({by_hand[0].file}:{by_hand[0].line}) did not come "
            "about in this step"
        )
    return Because(
        cause=cause,
        advice=AROUND_MICRO_STEPS if s.backwards > 1 else LEAVE_THE_FLAG,
        where=_called_as(set_at[0], forward) if len(set_at) == 1 else forward,
        proof=tuple(one for one in (*set_at, *by_hand, forward) if one is not None),
    )


def _called_as(line: CallSite, other: CallSite | None) -> CallSite:
    """A line with the callers of another one in the same function."""
    if other is None or (line.file, line.function) != (other.file, other.function):
        return line
    return CallSite(file=line.file, line=line.line, function=line.function, caller=other.caller)


def _inside(rank: Rank, usage: ev.Usage) -> Because:
    """``.module`` was taken: what has run on it, by the text of the line."""
    where = rank.where(usage.bare_site)
    line = rank.line(usage.bare_site)
    if where is not None and where.caller is not None and where.function == "__getattr__":
        # A wrapper of the program's own hands on to the module whatever is asked of it: who asked is to be changed.
        asked = _text(rank, usage.bare_site)
        names = set(re.findall(r"\.(\w+)\(", asked)) & program_text.functions(rank.process)
        method = f"{names.pop()}()" if len(names) == 1 else "what is called here"
        return Because(
            cause=(
                f"{method} ran on the module inside of the wrapper, which __getattr__ at {where.file}:{where.line} "
                "gives out, and not through the wrapper's forward"
            ),
            advice=_through_forward(method if "()" in method else ""),
            where=where.caller,
            proof=(where,),
        )
    methods = set(re.findall(r"\.module\.(\w+)\(", line))
    if len(methods) == 1:
        method = f"{methods.pop()}()"
        return Because(
            cause=f"{method} ran on `.module`, the module inside of the wrapper, and not through the wrapper's forward",
            advice=_through_forward(method),
            where=where,
        )
    return Because(
        cause="the loss came from `.module`, the module inside of the wrapper",
        advice=OF_THE_WRAPPER if ".module(" in line else IN_FORWARD,
        where=where,
    )


def _through_forward(method: str) -> str:
    if not method:
        return IN_FORWARD
    return (
        f"Let the model's forward() call {method}, and compute the loss from what the wrapper itself gives: model(x)."
    )


def _text(rank: Rank, site: int) -> str:
    """The text of the line that has called a line's function."""
    called = rank.process.calls_to(site)
    return called[-2].text if len(called) > 1 else ""
