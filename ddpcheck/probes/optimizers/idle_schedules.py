"""Schedulers of an optimizer that makes no step, while others do: its learning rates reach nobody."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ddpcheck.evidence import ScheduledInVain
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines

ENOUGH = 4
"""Calls, between which some optimizer has stepped."""

_Rates = list[float]
_calls: weakref.WeakKeyDictionary[Any, tuple[int, int, _Rates]] = weakref.WeakKeyDictionary()
"""By scheduler: its calls that followed a step of some optimizer, the steps by then, and the rates at the first one."""


def watcher(
    steps_so_far: Callable[[], int], have_been_stepped: Callable[[Iterable[torch.Tensor]], bool]
) -> Callable[[Any, Any], None]:
    """What hears of such a call."""

    def heard(scheduler: Any, optimizer: Any) -> None:
        try:
            _note(scheduler, optimizer, steps_so_far(), have_been_stepped)
        except Exception as error:  # an optimizer of the user's own may be anything
            signal_exceptions.let_through(error)

    return heard


def _note(
    scheduler: Any, optimizer: Any, steps: int, have_been_stepped: Callable[[Iterable[torch.Tensor]], bool]
) -> None:
    rates = [group["lr"] for group in optimizer.param_groups]
    calls, before, first = _calls.get(scheduler, (0, 0, rates))
    # A rate that is a tensor may lie on a device, and would have to be waited for.
    if calls >= ENOUGH or steps == before or not all(isinstance(rate, float) for rate in rates):
        return
    _calls[scheduler] = calls + 1, steps, first
    if calls + 1 < ENOUGH or rates == first:
        return
    # A wrapper that is stepped in its place has the same parameters.
    if have_been_stepped(one for group in optimizer.param_groups for one in group["params"]):
        return
    writer = recorder.current()
    number = gradient_events.number_of(optimizer)
    if writer is not None and number >= 0:
        writer.write(
            ScheduledInVain(
                **writer.next(),
                kind=type(scheduler).__name__,
                optimizer=number,
                of=type(optimizer).__name__,
                first=first[0],
                last=rates[0],
                site=user_lines.here(),
            )
        )
