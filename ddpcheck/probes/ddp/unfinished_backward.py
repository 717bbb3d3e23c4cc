"""Whether DDP had reduced everything when a backward was over: if not, other ranks wait for this one's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpcheck.evidence import Call
from ddpcheck.probes.collectives import call_log, one_call
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines

UNFINISHED = "ddp-unfinished"

_inside = 0


def watch() -> None:
    """Look at the reducers after every backward that reduces."""
    gradient_events.BACKWARD.also(_begins)


def _begins(*_: Any) -> Callable[[bool], None] | None:
    global _inside
    made = one_call.current()
    if _inside or made is None or made.op != "ddp-gradients":  # a backward within one is a part of it
        return None
    armed = [(ddp, wrapper) for ddp, wrapper in list(WRAPPERS.all.items()) if wrapper.armed_now]
    _inside += 1

    def is_over(is_well: bool) -> None:
        global _inside
        _inside -= 1
        if is_well and any(not wrapper.armed_now and not _finished(ddp) for ddp, wrapper in armed):
            _note(made)

    return is_over


def _finished(ddp: Any) -> bool:
    check = getattr(getattr(ddp, "reducer", None), "_check_reducer_finalized", None)
    if check is None:
        return True
    try:
        check()
    except RuntimeError as error:  # its way to say no
        signal_exceptions.let_through(error)
        return False
    return True


def _note(made: Call) -> None:
    writer = recorder.current()
    if writer is None:
        return
    call_log.ledger(writer).write(
        Call(
            **writer.next(),
            op=UNFINISHED,
            group=made.group,
            number=made.number,
            detail=made.detail,
            site=user_lines.here(),
            waits=False,
            joined=made.joined,
            of=made.n,
        )
    )
