"""Which FSDP modules are told not to reduce in the backward() calls to come."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ddpcheck.probes.layouts.parallelised import FSDP1, FSDP2
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import around, once_imported, shielded

_off: weakref.WeakSet[Any] = weakref.WeakSet()


def watch() -> None:
    """See it from now on."""
    once_imported(FSDP2, _watch_second)
    once_imported(FSDP1, _watch_first)


def is_off_for(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether a module that has all of these parameters was told so."""
    if not _off or not parameters:
        return False
    wanted = {id(p) for p in parameters}
    return any(wanted <= {id(p) for p in module.parameters()} for module in list(_off))


def _watch_second() -> None:
    kind = getattr(sys.modules.get(FSDP2), "FSDPModule", None)
    around(kind, "set_requires_gradient_sync", _around_setting)


def _watch_first() -> None:
    kind = getattr(sys.modules.get(FSDP1), "FullyShardedDataParallel", None)
    around(kind, "no_sync", _around_no_sync)


def _around_setting(original: Any) -> Any:
    def set_requires_gradient_sync(self: Any, requires_gradient_sync: bool, *args: Any, **kwargs: Any) -> Any:
        result = original(self, requires_gradient_sync, *args, **kwargs)
        if recorder.current() is not None:
            _set(self, bool(requires_gradient_sync))
        return result

    return set_requires_gradient_sync


def _around_no_sync(original: Any) -> Any:
    @contextmanager  # as torch's own is one: it may also be a decorator
    def no_sync(self: Any) -> Iterator[None]:
        before = self not in _off
        _set(self, False)
        try:
            with original(self):
                yield
        finally:
            _set(self, before)

    return no_sync


@shielded
def _set(module: Any, on: bool) -> None:
    if on:
        _off.discard(module)
    else:
        _off.add(module)
