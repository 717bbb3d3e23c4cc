"""When a script lets DDP synchronise: no_sync() and join() blocks, and where an accumulation begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.collectives import every_call
from ddpcheck.probes.data import dataloaders
from ddpcheck.probes.ddp.wrapper_usage import REGION, WRAPPERS, Wrapper
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import around, shielded


def watch() -> None:
    """Watch the blocks that change what a backward does."""
    around(DistributedDataParallel, "no_sync", _around_no_sync)
    around(torch.nn.Module, "zero_grad", _around_zero_grad)
    around(torch.optim.Optimizer, "zero_grad", _around_zero_grad)
    around(Join, "__enter__", _around_entering)
    around(Join, "__exit__", _around_leaving)


def _around_no_sync(original: Any) -> Any:
    @contextmanager  # as torch's own is one: it may also be a decorator
    def no_sync(self: Any) -> Iterator[None]:
        wrapper = _entering(self)
        try:
            with original(self):
                yield
        finally:
            if wrapper is not None:
                wrapper.depth = max(0, wrapper.depth - 1)

    return no_sync


@shielded
def _entering(ddp: Any) -> Wrapper | None:
    wrapper = WRAPPERS.all.get(ddp) if recorder.current() is not None else None
    if wrapper is not None:
        wrapper.counts["no_sync"] += 1
        wrapper.no_sync_site = user_lines.here()
        wrapper.depth += 1
    return wrapper


def _around_zero_grad(original: Any) -> Any:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        for wrapper in list(WRAPPERS.all.values()):
            wrapper.lines.clear()  # what follows is no accumulation of what was before
        gradient_events.ZEROED.tell()
        return original(self, *args, **kwargs)

    return zero_grad


def _join(entered: bool) -> None:
    REGION.number += 1
    dataloaders.set_joined(entered)
    every_call.set_joined(entered)


def _around_entering(original: Any) -> Any:
    def __enter__(self: Any) -> Any:
        _join(True)
        return original(self)

    return __enter__


def _around_leaving(original: Any) -> Any:
    def __exit__(self: Any, *error: Any) -> Any:
        with recorder.silence():  # the joined ranks' shadows of the others' collectives are not the script's
            result = original(self, *error)
        _join(False)
        return result

    return __exit__
