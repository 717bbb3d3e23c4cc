"""What shards or wraps modules by torch's own functions: fully_shard, FSDP, parallelize_module, pipeline stages."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch.distributed import device_mesh

from ddpcheck.evidence import Parallelised
from ddpcheck.probes.collectives.process_groups import ranks_of
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.layouts import averaged, declared, fsdp_groups, models
from ddpcheck.probes.layouts.cut_from import Cutting
from ddpcheck.probes.layouts.unwritten import Kept
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.patching import around, once_imported

FSDP2 = "torch.distributed.fsdp._fully_shard._fully_shard"
FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
PIPELINE = "torch.distributed.pipelining.stage"
TENSOR = "torch.distributed.tensor.parallel.api"


_wrapping = 0
"""Constructors of FSDP that are under way: one may wrap the parts of its module."""


class Built:
    """What was sharded, wrapped or made a stage so far."""

    count = 0


def watch() -> None:
    """See what is sharded or wrapped from now on."""
    around(device_mesh, "init_device_mesh", _around_mesh)
    once_imported(FSDP2, lambda: _watch(FSDP2, "fully_shard", _around_fully_shard))
    for name in ("set_gradient_divide_factor", "set_reduce_scatter_divide_factor"):
        once_imported(FSDP2, partial(_watch_factor, name))
    once_imported(TENSOR, lambda: _watch(TENSOR, "parallelize_module", _around_parallelize))
    once_imported(FSDP1, lambda: _watch_class(FSDP1, "FullyShardedDataParallel", _around_fsdp))
    once_imported(PIPELINE, lambda: _watch_class(PIPELINE, "_PipelineStageBase", _around_stage))


def _around_mesh(original: Any) -> Any:
    def init_device_mesh(*args: Any, **kwargs: Any) -> Any:
        mesh = original(*args, **kwargs)
        writer = recorder.current()
        if writer is not None and getattr(mesh, "mesh_dim_names", None):
            declared.note(writer, mesh)
        return mesh

    return init_device_mesh


def _watch(module: str, name: str, make: Any) -> None:
    around(sys.modules.get(module), name, make)


def _watch_class(module: str, name: str, make: Any) -> None:
    around(getattr(sys.modules.get(module), name, None), "__init__", make)


def _write(how: Any, module: Any, site: int, **more: Any) -> None:
    Built.count += 1
    writer = recorder.current()
    if writer is not None:
        models.parallelised(module)
        number = parameter_names.number_of(module) if isinstance(module, torch.nn.Module) else -1
        writer.write(Parallelised(**writer.next(), how=how, site=site, module=number, **more))


def _around_fully_shard(original: Any) -> Any:
    known = places(original)

    def fully_shard(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is None:
            return original(*args, **kwargs)
        given = Arguments(known, args, kwargs)
        module = given.get("module")
        models.ignore(given.get("ignored_params") or ())
        kind = module[0] if isinstance(module, (list, tuple)) and module else module
        ranks = _ranks(given.get("mesh"))
        _write("fully_shard", kind, user_lines.here(), ranks=ranks)
        cutting, kept = Cutting(module, ranks), Kept(module)
        result = original(*args, **kwargs)
        cutting.is_over()
        kept.is_over()
        averaged.note(module, () if "dp_mesh_dims" in kwargs else ranks)
        return result

    return fully_shard


def _watch_factor(name: str) -> None:
    kind = getattr(sys.modules.get(FSDP2), "FSDPModule", None)
    if kind is not None and name in vars(kind):
        around(kind, name, _around_factor)


def _around_factor(original: Any) -> Any:
    def set_factor(self: Any, factor: float, *args: Any, **kwargs: Any) -> Any:
        result = original(self, factor, *args, **kwargs)
        if recorder.current() is not None:
            averaged.set_divisor(self, float(factor))
        return result

    return set_factor


def _ranks(mesh: Any, group: Any = None) -> tuple[int, ...]:
    """The ranks that shard one model among them; those that are its replicas count."""
    if mesh is not None:
        return tuple(sorted(mesh.mesh.flatten().tolist()))
    groups = group if isinstance(group, tuple) else (group,)
    return tuple(sorted({rank for one in groups for rank in ranks_of(one)}))


def _around_parallelize(original: Any) -> Any:
    known = places(original)

    def parallelize_module(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is not None:
            given = Arguments(known, args, kwargs)
            _write("parallelize_module", given.get("module"), user_lines.here(), ranks=_ranks(given.get("device_mesh")))
        return original(*args, **kwargs)

    return parallelize_module


def _around_fsdp(original: Any) -> Any:
    known = places(original)

    def __init__(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        global _wrapping
        cutting = None
        given = Arguments(known, (self, module, *args), kwargs)
        if recorder.current() is not None:
            ignored = [p for one in given.get("ignored_modules") or () for p in one.parameters()]
            ignored += [p for p in given.get("ignored_states") or () if isinstance(p, torch.Tensor)]
            models.ignore(ignored)
            ranks = _ranks(given.get("device_mesh"), given.get("process_group"))
            _write("FullyShardedDataParallel", module, user_lines.here(), ranks=ranks)
            if not _wrapping and not given.get("sync_module_states"):
                cutting = Cutting(module, ranks)
        _wrapping += 1
        try:
            original(self, module, *args, **kwargs)
        finally:
            _wrapping -= 1
        if cutting is not None:
            cutting.is_over_in_one()
        if recorder.current() is not None:
            fsdp_groups.note(self, given)
            if not _wrapping:
                averaged.note(self, _ranks(given.get("device_mesh"), given.get("process_group")))

    return __init__


def _around_stage(original: Any) -> Any:
    known = places(original)

    def __init__(*args: Any, **kwargs: Any) -> None:
        if recorder.current() is not None:
            given = Arguments(known, args, kwargs)
            stage, stages = given.get("stage_index"), given.get("num_stages")
            models.staged(given.get("submodule"))
            try:
                of = {"stage": stage, "stages": stages, "pipeline": _ranks(None, given.get("group"))}
                _write("PipelineStage", given.get("submodule"), user_lines.here(), **of)
            except Exception as error:  # numbers that are none: torch will say so
                signal_exceptions.let_through(error)
        original(*args, **kwargs)

    return __init__
