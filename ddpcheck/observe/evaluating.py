"""The state of a model when a script turns to evaluating it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import Evaluated, Tensors
from ddpcheck.observe import recorder, sites
from ddpcheck.observe.pace import is_due
from ddpcheck.observe.patching import around
from ddpcheck.observe.usage import WRAPPERS
from ddpcheck.observe.wrappers import tensors

_times: Counter[int] = Counter()


def watch() -> None:
    """Look at every model on which ``eval()`` is called from now on."""
    around(torch.nn.Module, "eval", _around_eval)


def _around_eval(original: Any) -> Any:
    def eval(self: Any) -> Any:
        writer = recorder.current()
        if writer is not None and dist.is_available() and dist.is_initialized() and not torch.compiler.is_compiling():
            site = sites.here()
            number = _times[site]
            _times[site] += 1
            if is_due(number):
                with recorder.silence():
                    record = _describe(writer, self, number, site)
                if record is not None:
                    writer.write(record)
        return original(self)

    return eval


def _describe(writer: recorder.Recorder, module: Any, number: int, site: int) -> Evaluated | None:
    wrapped = isinstance(module, DistributedDataParallel)
    bare = module.module if wrapped else module
    parameters = dict(bare.named_parameters())
    buffers = dict(bare.named_buffers())
    if not parameters and not buffers:
        return None
    owner = next((found for p in parameters.values() if (found := WRAPPERS.owner(p)) is not None), None)
    local = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in bare.named_modules()
        for name in part._buffers
        if name in part._non_persistent_buffers_set
    }
    kept = {name: b for name, b in buffers.items() if name not in local}
    return Evaluated(
        **writer.next(),
        kind=type(bare).__name__,
        number=number,
        parameters=tensors(parameters),
        buffers=tensors(kept) if kept else Tensors(),
        site=site,
        wrapper=owner[1].number if owner is not None else None,
        through=wrapped,
    )
