"""When a script lets DDP synchronise: no_sync() and join() blocks, and where an accumulation begins anew."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.observe import collectives, loading, recorder, sites
from ddpcheck.observe.patching import around
from ddpcheck.observe.usage import REGION, WRAPPERS


def watch() -> None:
    """Watch the blocks that change what a backward does."""
    around(DistributedDataParallel, "no_sync", _around_no_sync)
    around(torch.nn.Module, "zero_grad", _around_zero_grad)
    around(torch.optim.Optimizer, "zero_grad", _around_zero_grad)
    around(Join, "__enter__", _around_entering)
    around(Join, "__exit__", _around_leaving)


def _around_no_sync(original: Any) -> Any:
    class NoSync:
        """DDP's own block, counted."""

        def __init__(self, ddp: Any) -> None:
            self._wrapper = WRAPPERS.all.get(ddp)
            self._own = original(ddp)

        def __enter__(self) -> Any:
            if self._wrapper is not None and recorder.current() is not None:
                self._wrapper.counts["no_sync"] += 1
                self._wrapper.no_sync_site = sites.here()
                self._wrapper.depth += 1
            return self._own.__enter__()

        def __exit__(self, *error: Any) -> Any:
            if self._wrapper is not None:
                self._wrapper.depth = max(0, self._wrapper.depth - 1)
            return self._own.__exit__(*error)

    def no_sync(self: Any) -> Any:
        return NoSync(self)

    return no_sync


def _around_zero_grad(original: Any) -> Any:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        for wrapper in list(WRAPPERS.all.values()):
            wrapper.lines.clear()  # what follows is no accumulation of what was before
        return original(self, *args, **kwargs)

    return zero_grad


def _join(entered: bool) -> None:
    REGION.number += 1
    loading.set_joined(entered)
    collectives.set_joined(entered)


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
