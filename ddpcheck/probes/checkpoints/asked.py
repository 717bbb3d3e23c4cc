"""Optimizers that are asked for their state before they have any: torch makes a step to have some."""

from __future__ import annotations

import sys
from typing import Any

from ddpcheck.evidence import StateAsked
from ddpcheck.probes.optimizers import steps
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import around, once_imported

STATE = "torch.distributed.checkpoint.state_dict"


def watch() -> None:
    """Record every step that is made for the sake of a state dict, from now on."""
    once_imported(STATE, _watch_state)


def _watch_state() -> None:
    around(sys.modules.get(STATE), "_init_optim_state", _around_init)


def _around_init(original: Any) -> Any:
    def init(optim: Any, *args: Any, **kwargs: Any) -> Any:
        writer = recorder.current()
        before = bool(getattr(optim, "state", True))
        with steps.not_of_the_training():
            result = original(optim, *args, **kwargs)
        kept = getattr(optim, "state", None)
        if writer is not None and not before and kept:
            keys = sorted({str(key) for one in kept.values() for key in one})
            it = steps.watched(optim)
            if it is not None:
                writer.write(
                    StateAsked(
                        **writer.next(),
                        how=_asked(),
                        optimizer=it.number,
                        kind=type(optim).__name__,
                        site=user_lines.here(),
                        changed=keys[:20],
                    )
                )
        return result

    return init


def _asked() -> str:
    """The function of torch's that the program has called."""
    frame, found = sys._getframe(1), ""
    while frame is not None:
        if frame.f_code.co_filename.endswith("checkpoint/state_dict.py") and not frame.f_code.co_name.startswith("_"):
            found = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return found
