"""Every name of torch and of Python that a probe is put around or reads, and the checks that fall with it.

A probe that finds nothing where it belongs sees nothing, and what it sees
nothing of would look right. So each such place, a seam, has a name here, and
where it is missing the checks that rest on it are reported as not checked.
Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import inspect
import platform
import re
import sys
from collections import defaultdict
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple


class Seam(NamedTuple):
    """One place of another's code that probes rest on."""

    name: str
    """As one would look it up: ``torch.nn.parallel.DistributedDataParallel._post_forward``."""
    sight: str = ""
    """What a probe sees there: one of SIGHTS, on which checks rest."""
    by_instances: bool = False
    """Objects of the class have it, and the class itself does not."""
    since: tuple[int, int] = (0, 0)
    """The first version that has it; before, there is nothing to see."""
    optional: bool = False
    """Where it is missing, no program can use it: nothing is lost."""
    later: bool = False
    """Its module is imported by programs that need it, and has nothing to show before."""

    @property
    def home(self) -> str:
        """What has it: a module or a class."""
        return self.name.rpartition(".")[0]

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def of(self) -> str:
        """Who should have it, with the version: ``torch 2.13.0``."""
        package = _package(self.name)
        return f"{package} {_version(package)}" if package in _PACKAGES else f"Python {platform.python_version()}"

    @property
    def is_there(self) -> bool:
        """Whether it is where it belongs, of what has been imported so far."""
        home = resolved(self.home)
        if home is None:
            return False
        if self.by_instances:
            return _is_named_by(home, self.last)
        return self.last in vars(home) if isinstance(home, type) else hasattr(home, self.last)

    @property
    def is_missing(self) -> bool:
        """Whether it should be there, and is not."""
        if self.later and self.home not in sys.modules:
            return False
        return self.is_needed and not self.is_there

    @property
    def is_needed(self) -> bool:
        """Whether something is unseen without it, in this version."""
        return not self.optional and _release(self.name) >= self.since


_PACKAGES = ("torch", "numpy", "pytest", "hypothesis")


def _package(name: str) -> str:
    return name.partition(".")[0].lstrip("_")


@cache
def _version(package: str) -> str:
    loaded = getattr(sys.modules.get(package), "__version__", None)
    return str(loaded or metadata.version(package)).partition("+")[0]


def _release(name: str) -> tuple[int, ...]:
    package = _package(name)
    if package not in _PACKAGES:
        return sys.version_info[:2]
    return tuple(int(number) for number in re.findall(r"\d+", _version(package))[:2])


def resolved(path: str) -> Any:
    """The module or class of this name; None where there is none, or where it was not imported."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found: Any = sys.modules.get(".".join(parts[:length]))
        if found is not None:
            for part in parts[length:]:
                found = getattr(found, part, None)
            return found
    return None


def _is_named_by(kind: Any, name: str) -> bool:
    """Whether objects of a class have this attribute, as far as its own code shows: some method of it names it."""
    for one in inspect.getmro(kind):
        if name in vars(one) or name in vars(one).get("__annotations__", {}):
            return True
        for member in vars(one).values():
            # By way of the function itself, where a probe is around it already.
            code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
            if code is not None and name in code.co_names:
                return True
    return False


# --- the table: what is seen, as the end of "it shows …", and where


def _at(home: str, names: str, **more: Any) -> list[Seam]:
    """The seams of one module or class; ``names`` stand side by side."""
    return [Seam(f"{home}.{name}", **more) for name in names.split()]


def _on(home: str, names: str, **more: Any) -> list[Seam]:
    """Those that the objects of a class have."""
    return _at(home, names, by_instances=True, **more)


_C10D = "torch.distributed.distributed_c10d"
_DATALOADER = "torch.utils.data.dataloader"
_CHECKPOINTS = "torch.utils.checkpoint"
_DCP = "torch.distributed.checkpoint"
_DDP = "torch.nn.parallel.DistributedDataParallel"
_FETCH = "torch.utils.data._utils.fetch"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel"
_FSDP2 = "torch.distributed.fsdp._fully_shard._fully_shard"
_FSDP_PARAM = "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam"
_JOIN = "torch.distributed.algorithms.join.Join"
_MODULE = "torch.nn.Module"
_OPENER = "torch.serialization._open_zipfile_writer_file"
_OPTIMIZER = "torch.optim.Optimizer"
_PASS = f"{_DATALOADER}._BaseDataLoaderIter"
_PROCESS = "multiprocessing.process.BaseProcess"
_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_SCALER = "torch.amp.GradScaler"
_SCHEDULER = "torch.optim.lr_scheduler.LRScheduler"
_TENSOR = "torch.distributed.tensor"
_WORKERS = f"{_DATALOADER}._MultiProcessingDataLoaderIter"

# fmt: off
_TABLE: dict[str, tuple[str, list[Seam]]] = {
    # wrappers, and the modules inside
    "wrappers": ("which modules are wrapped, and for which ranks", _at(_DDP, "__init__") + _on(_DDP, "process_group")),
    "forwards": ("where forwards through a wrapper begin", _at(_DDP, "_pre_forward")),
    "armed forwards": ("which forwards arm the reducer", _at(_DDP, "_post_forward")),
    "contributions": ("what each backward contributes", _at("torch.autograd.graph", "get_gradient_edge")),
    "backwards": ("every backward", _at("torch.autograd", "backward")
        # What reaches sharded parameters before it is reduced, and what grad() gives: no check rests on it yet.
        + _at("torch.autograd", "grad", optional=True)
        + _at(_FSDP_PARAM, "to_unsharded", optional=True)
        + _on(_FSDP_PARAM, "sharded_param _unsharded_param", optional=True)
        + _on("torch.distributed.fsdp._flat_param.FlatParameter", "_params _param_infos _shard_param_infos _shapes "
        "_numels_with_padding _is_padding_mask", optional=True)),
    "reductions": ("which backwards reduce", _on(_DDP, "require_backward_grad_sync find_unused_parameters")
        + _at("torch.nn.parallel.distributed", "_find_tensors")),
    "reduced parameters": ("which parameters are reduced", _on(_DDP, "_module_parameters")),
    "no_sync": ("which backwards are not to reduce", _at(_DDP, "no_sync")),
    "broadcasts of buffers": ("which forwards broadcast buffers", _at(_DDP, "will_sync_module_buffers")),
    "buffers": ("which buffers are to agree", _on(_DDP, "broadcast_buffers")
        + _on(_MODULE, "_buffers _non_persistent_buffers_set")),
    "loss terms": ("what the parts of a loss are", _at("torch.autograd.graph.Node", "_input_metadata",
        since=(2, 5))),
    "devices": ("which devices a wrapper was given", _on(_DDP, "device_ids output_device")),
    "communication hooks": ("which wrappers may reduce in the order of ranks", _on(_DDP, "_comm_hooks")),
    "unfinished calls": ("which calls have not come to their end", _on(_DDP, "_has_rebuilt_buckets reducer")
        + _at("torch._C._distributed_c10d.Reducer", "_check_reducer_finalized")
        + _on(_JOIN, "_enable _process_group") + _at(f"{_C10D}.GroupMember", "NON_GROUP_MEMBER")),
    "module calls": ("which modules are called", _at(_MODULE, "__call__")),
    "recomputation": ("what runs again for a backward", _at(_CHECKPOINTS, "_CheckpointFrame", later=True)
        + _at(f"{_CHECKPOINTS}._CheckpointFrame", "__init__", later=True)
        + _at(f"{_CHECKPOINTS}.CheckpointFunction", "forward", later=True)),
    "conversions": ("which wrapped modules are moved or cast", _at(_MODULE, "_apply")),
    "parameter names": ("where parameters come from, and gradients begin anew", _at(_MODULE, "zero_grad")
        + _at(_OPTIMIZER, "zero_grad")
        + _at("torch.nn.modules.module", "register_module_parameter_registration_hook")
        + _at("torch.utils", "swap_tensors", optional=True)),
    "held state": ("where parameters are", _on(_MODULE, "_parameters _modules")),
    # optimizers
    "optimizers": ("which optimizers are built, and what of theirs is left to each rank", _at(_OPTIMIZER, "__init__")
        + _at(_DDP, "register_comm_hook") + _on(_DDP, "parameters_to_ignore")
        + _at("torch.distributed.fsdp._common_utils", "_is_fsdp_flattened", later=True)),
    "steps": ("what optimizers step on, and have stepped", _at("torch.optim.optimizer",
        "register_optimizer_step_pre_hook register_optimizer_step_post_hook")),
    "scalers": ("the scale of gradients", _at(_SCALER, "step") + _on(_SCALER, "_scale")),
    "norms": ("what gradients are measured and clipped by", _at("torch.nn.utils.clip_grad", "clip_grad_norm_")
        + _at("torch.nn.utils", "get_total_norm clip_grads_with_norm_", since=(2, 6)) + _at(_SCALER, "unscale_")
        + _at(_FSDP1, "clip_grad_norm_", later=True)),
    "unreduced backwards": ("in which backwards FSDP is not to reduce", _at(f"{_FSDP2}.FSDPModule",
        "set_requires_gradient_sync", later=True) + _at(_FSDP1, "no_sync", later=True)),
    "schedulers": ("how often schedulers are stepped", _at(_SCHEDULER, "step")
        + _on(_SCHEDULER, "optimizer last_epoch")),
    # parts of tensors
    "parts": ("which part of a tensor a rank holds", _at(f"{_TENSOR}.DTensor", "_local_tensor", optional=True)
        + _at(f"{_TENSOR}._utils", "compute_local_shape_and_global_offset", optional=True)),
    "sharding": ("what is sharded, and what is left alone", _at(_FSDP2, "fully_shard", later=True)
        + _at("torch.distributed.device_mesh", "init_device_mesh")
        + _at(f"{_FSDP2}.FSDPModule", "set_gradient_divide_factor", later=True, optional=True)
        + _at(f"{_FSDP2}.FSDPModule", "set_reduce_scatter_divide_factor", later=True, optional=True)
        + _at(f"{_TENSOR}.parallel.api", "parallelize_module", later=True)
        + _at(_FSDP1, "__init__", later=True)
        + _at("torch.distributed.pipelining.stage._PipelineStageBase", "__init__", later=True)),
    "unwritten memory": ("which memory modules are given unwritten", _at(_MODULE, "to_empty")),
    # groups, and where ranks meet
    "ranks": ("which processes are ranks of one group", _at(_C10D, "init_process_group _get_default_store")),
    "groups": ("which groups there are", _at(_C10D, "new_group _get_default_group GroupMember")),
    "leaving": ("which ranks have left", _at(_C10D, "destroy_process_group")),
    "collectives": ("every collective that is called", _at("torch.library.Library", "impl")
        + _at("torch._C", "_after_autograd_keyset _dispatch_get_all_op_names") + _at(_C10D, "batch_isend_irecv")
        + _at("torch._C._distributed_c10d.Work", "wait")
        # Only devices are asked by these. What one torch may lack of them is no reason to judge no other calls.
        + _at("torch._C", "_cuda_hasPrimaryContext", optional=True)
        + _at("torch._C._distributed_c10d", "_dump_nccl_trace_json _dump_fr_trace_json", optional=True)
        + _at("torch._C._distributed_c10d", "FlightRecorderHook", optional=True)),
    "uneven inputs": ("where ranks may have uneven inputs", _at(_JOIN, "__enter__ __exit__")),
    # data
    "passes": ("every pass through a loader, and what is drawn for its samples",
        _at("torch.utils.data.DataLoader", "__init__") + _at(_PASS, "__init__ _next_index __next__")
        + _on(_PASS, "_base_seed") + _at(_WORKERS, "_reset") + _at(f"{_FETCH}._MapDatasetFetcher", "fetch")
        + _at(f"{_FETCH}._IterableDatasetFetcher", "fetch")
        + _at("torch", "default_generator manual_seed set_rng_state") + _at("random", "seed setstate")
        + _at("numpy.random", "seed set_state", later=True)),
    "parts of batches": ("which places of a batch have gone into a loss",
        _at("torch._C._autograd.SavedTensor", "data unpack_hook", optional=True)),
    "samplers": ("where samplers are built, and which batches come in order", _at(_SAMPLER, "__init__")
        + _on(_WORKERS, "_in_order", since=(2, 6))),
    "orders of samplers": ("the order of every pass through a sampler", _at(_SAMPLER, "__iter__")),
    "random states": ("random states of GPUs", _at("torch.cuda",
        "default_generators manual_seed manual_seed_all set_rng_state set_rng_state_all")),
    # files
    "saves": ("what is saved", _at("torch.serialization", "save") + _at(_OPENER, "__exit__")
        + _at("torch.jit._script.RecursiveScriptModule", "save") + _at("torch.jit._serialization", "save")),
    "files that torch.save opens": ("which files torch.save opens", _at(_OPENER, "__init__")),
    "loads": ("what is loaded", _at("torch.serialization", "load") + _at("torch.jit._serialization", "load")
        + _at(_MODULE, "load_state_dict")),
    "state loads": ("what is loaded into optimizers, schedulers and scalers", _at(_OPTIMIZER, "load_state_dict")
        + _at(_SCHEDULER, "load_state_dict") + _at(_SCALER, "load_state_dict")),
    "taken state": ("which state modules give", _at(_MODULE, "_save_to_state_dict")),
    "waits for files": ("which files, keys and threads are waited for", _at("posixpath", "exists isfile isdir")
        + _at("pathlib.Path", "exists is_file is_dir") + _at("torch.distributed.Store", "set wait get")
        + _at("threading.Thread", "join") + _at("threading.Event", "wait") + _at("queue.Queue", "join get")
        + _at("concurrent.futures.Future", "result exception") + _at("concurrent.futures._base", "wait")
        + _at("threading", "_active")),
    "saved state": ("which state is saved, and whether it stays as it is until it is written",
        _at(f"{_DCP}.state_dict_saver", "_save_state_dict async_save _stateful_to_state_dict", later=True)),
    "loaded state": ("which state a load leaves", _at(f"{_DCP}.state_dict_loader", "_load_state_dict", later=True)),
    "asked state": ("which optimizers make a step to have a state", _at(f"{_DCP}.state_dict", "_init_optim_state",
        later=True)),
    # processes
    "what is left": ("what is left when a script is over", _at("threading.Thread", "start")
        + _at("threading", "_register_atexit") + _at("multiprocessing.process", "_children") + _at(_PROCESS, "start")
        + _at("subprocess.Popen", "__init__") + _at(_C10D, "_world") + _at(f"{_C10D}._world", "pg_map")),
    "ends of processes": ("what processes raise, and how they end", _at(_PROCESS, "run _bootstrap")
        + _at("torch.multiprocessing.spawn", "_wrap") + _at("multiprocessing.popen_fork.Popen", "poll")
        + _at("subprocess.Popen", "_handle_exitstatus") + _at("os", "_exit kill abort")
        + _at("signal", "raise_signal")),
}
# fmt: on

SIGHTS: dict[str, str] = {sight: purpose for sight, (purpose, _) in _TABLE.items()}
"""What probes see, by the names that checks rest on, as the end of "it shows …"."""
SEAMS = tuple(seam._replace(sight=sight) for sight, (_, seams) in _TABLE.items() for seam in seams)

RUNTIME = tuple(
    Seam(f"{home}.{name}", f"for {purpose}", by_instances=by_instances, later=True)
    for purpose, home, names, by_instances in (
        ("reports that ranks made", "_pytest._code.code", "ExceptionChainRepr ExceptionRepr ReprEntry", False),
        ("reports that ranks made", "_pytest._code.code", "ReprEntryNative ReprExceptionInfo ReprFileLocation", False),
        ("reports that ranks made", "_pytest._code.code", "ReprTraceback", False),
        ("reports that ranks made", "_pytest.skipping", "evaluate_xfail_marks", False),
        ("reports that ranks made", "_pytest.reports.BaseReport", "_from_json", False),
        ("the session in a rank", "_pytest.config.Config", "fromdictargs", False),
        ("the session in a rank", "_pytest._io", "TerminalWriter", False),
        ("the session in a rank", "_pytest.config.Config", "_tmp_path_factory", False),
        ("the session in a rank", "pytest.Session", "_fixturemanager _setupstate", True),
        ("the fixtures of a property", "pytest.Function", "_fixtureinfo _request", True),
        ("tests that are run again", "_pytest", "hookspec", False),
        ("examples in ranks", "hypothesis.internal.conjecture.data", "ConjectureData Status", False),
        ("examples in ranks", "hypothesis.internal.escalation", "get_trimmed_traceback", False),
        ("examples in ranks", "hypothesis.internal", "entropy", False),
        ("examples in ranks", "hypothesis.internal.intervalsets", "IntervalSet", False),
        ("examples in ranks", "hypothesis.control", "current_build_context", False),
    )
    for name in names.split()
)
"""What the plugin itself takes from pytest and hypothesis beside their documented names: no check rests on it."""

SEEN = {
    "torch": "2.4.1, 2.6.0, 2.9.1, 2.13.0 and 2.15.0",
    "Python": "3.10 to 3.13",
    "pytest": "8.2 and 9.2",
    "hypothesis": "6.131 and later",
    "numpy": "2",
}
"""The versions where all of these were seen in their places, but for what is newer or says that it may be missing."""

BY_NAME = {seam.name: seam for seam in SEAMS}
_BY_LAST: dict[str, list[Seam]] = defaultdict(list)
for _seam in SEAMS:
    _BY_LAST[_seam.last].append(_seam)


def find(owner: Any, name: str) -> Seam | None:
    """The seam that ``owner.name`` is, by whichever way the owner was reached; a class has those of its bases, too."""
    for seam in _BY_LAST.get(name, ()):
        home = resolved(seam.home)
        if home is owner or (isinstance(owner, type) and isinstance(home, type) and issubclass(owner, home)):
            return seam
    return None


def missing() -> list[Seam]:
    """Those that should be there, and are not."""
    return [seam for seam in SEAMS if seam.is_missing]


def import_homes() -> None:
    """Import what has them, as the probes do."""
    for home in dict.fromkeys(seam.home for seam in SEAMS):
        parts = home.split(".")
        for length in range(1, len(parts) + 1):
            try:
                importlib.import_module(".".join(parts[:length]))
            except ImportError:  # a class, or what this version has not
                break


def reason(name: str, of: str) -> str:
    """Why a check was not made, as a clause."""
    return f"{of} has no {name}, on which this check rests"
