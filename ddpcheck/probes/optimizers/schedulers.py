"""Learning-rate schedulers that are stepped several times between two steps of their optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import lr_scheduler

from ddpcheck.evidence import NO_SITE, Scheduled
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around

_runs: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
"""By scheduler: its optimizer's steps at the last call, the calls in a row, and the line of the second of them."""
_bursts: dict[tuple[str, int, int], int] = {}
_depth = 0


def watch(steps_of: Callable[[Any], int]) -> None:
    """Watch every scheduler from now on; ``steps_of`` tells how many steps an optimizer has made."""
    for kind in set(filter(_schedules, vars(lr_scheduler).values())):
        around(kind, "step", partial(_around_step, steps_of=steps_of))


def _schedules(one: Any) -> bool:
    """Whether it is a class of schedulers with a step of its own; LRScheduler has to have one."""
    base = lr_scheduler.LRScheduler
    return isinstance(one, type) and issubclass(one, base) and (one is base or "step" in vars(one))


def _around_step(original: Any, steps_of: Callable[[Any], int]) -> Any:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _depth
        if _depth == 0 and recorder.current() is not None and getattr(self, "last_epoch", -1) >= 0:
            steps = steps_of(getattr(self, "optimizer", None))
            if steps:
                _note(self, steps)
        _depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _depth -= 1

    return step


def _note(scheduler: Any, steps: int) -> None:
    """Count the calls that follow each other with no step of the optimizer between."""
    run = _runs.get(scheduler)
    if run is not None and run[0] == steps:
        run[1] += 1
        run[2] = run[2] or user_lines.here()
        return
    if run is not None and run[1] > 1:
        _tell(scheduler, run[1], run[2])
    _runs[scheduler] = [steps, 1, NO_SITE]


def _tell(scheduler: Any, times: int, site: int) -> None:
    key = (type(scheduler).__name__, times, site)
    _bursts[key] = bursts = _bursts.get(key, 0) + 1
    writer = recorder.current()
    if writer is not None and is_due(bursts):
        writer.write(Scheduled(**writer.next(), kind=key[0], times=times, site=site, bursts=bursts))
