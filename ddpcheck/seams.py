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
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

from ddpcheck.checks.catalogue import CHECKS, ORACLES


class Seam(NamedTuple):
    """One place of another's code that probes rest on."""

    name: str
    """As one would look it up: ``torch.nn.parallel.DistributedDataParallel._post_forward``."""
    purpose: str
    """What a probe sees there, as the end of "it shows …"."""
    checks: tuple[str, ...] = ()
    """What cannot be judged of a script's run without it."""
    asserted: tuple[str, ...] = ()
    """The assertions that cannot be judged without it, by their names, or all those of a check, by its id."""
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
        package = self.name.partition(".")[0]
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


_PACKAGES = ("torch", "numpy")


@cache
def _version(package: str) -> str:
    loaded = getattr(sys.modules.get(package), "__version__", None)
    return str(loaded or metadata.version(package)).partition("+")[0]


def _release(name: str) -> tuple[int, ...]:
    package = name.partition(".")[0]
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


# --- what checks have in common

STOPS = ("rank-failure", "no-hang")
_CALLS = ("collective-order", "no-hang")
_STATE = ("initial-broadcast", "gradient-sync", "parameter-sync", "buffer-sync", "optimizer-sync", "reducer-coverage")
_DATA = ("shard-partition", "epoch-reshuffle", "batch-count")
_READ_AFTER = "checkpoint-read-after-write"
_WRITES = ("checkpoint-single-writer", _READ_AFTER, "checkpoint-atomic-save")
_READS = (_READ_AFTER, "checkpoint-map-location", "checkpoint-load-complete")
_ALL = tuple(check for check in CHECKS if check not in ORACLES)
_WRAPPED = tuple(check for check in _ALL if check not in ("rank-failure", *_WRITES))
"""What a wrapper is the ground of, or what is told with the help of one."""
_REDUCED = ("reducer-coverage", "gradient-sync", *_CALLS)
"""What is judged by the forwards that have made a backward reduce."""
_MEETINGS = (*_CALLS, "reducer-coverage", "gradient-sync", "parameter-sync", *_DATA, _READ_AFTER, _READS[-1])
"""What is judged by where ranks meet."""
_RECORDED = ("checkpoint-single-writer", _READ_AFTER, "checkpoint-map-location")
"""What assertions judge by what they have put on record, as it is of runs."""
_HELD = ("resume-equivalence", "checkpoint-load-complete")
"""What assertions judge by all that a training holds."""


def _at(home: str, names: str, purpose: str, *checks: str, asserted: Iterable[str] = (), **more: bool) -> list[Seam]:
    """The seams of one module or class that serve the same purpose; ``names`` stand side by side."""
    return [Seam(f"{home}.{name}", purpose, checks, tuple(asserted), **more) for name in names.split()]  # type: ignore[arg-type]


def _on(home: str, names: str, purpose: str, *checks: str, asserted: Iterable[str] = ()) -> list[Seam]:
    """Those that the objects of a class have."""
    return _at(home, names, purpose, *checks, asserted=asserted, by_instances=True)


def _files(home: str, names: str, purpose: str, *checks: str) -> list[Seam]:
    """Those of what is done with files."""
    return _at(home, names, purpose, *checks, asserted=[check for check in checks if check in _RECORDED])


def _meetings(home: str, names: str, **more: bool) -> list[Seam]:
    """Those of collectives."""
    return _at(home, names, "every collective that is called", *_MEETINGS, asserted=[_READ_AFTER], **more)


_C10D = "torch.distributed.distributed_c10d"
_DATALOADER = "torch.utils.data.dataloader"
_DDP = "torch.nn.parallel.DistributedDataParallel"
_FUNCTIONAL = "torch.distributed._functional_collectives"
_JOIN = "torch.distributed.algorithms.join.Join"
_MODULE = "torch.nn.Module"
_OPENER = "torch.serialization._open_zipfile_writer_file"
_OPTIMIZER = "torch.optim.Optimizer"
_PROCESS = "multiprocessing.process.BaseProcess"
_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_SCALER = "torch.amp.GradScaler"
_SCHEDULER = "torch.optim.lr_scheduler.LRScheduler"

# One line for what serves one purpose: where it is, its names, to see what, for which checks.
# fmt: off
SEAMS = (
    # wrappers
    *_at(_DDP, "__init__", "which modules are wrapped", *_WRAPPED, asserted=[_READ_AFTER]),
    *_at(_DDP, "_pre_forward", "where forwards begin", "buffer-sync", "rng-independence", "shard-partition", *_REDUCED),
    *_at(_DDP, "_post_forward", "which forwards arm the reducer", "buffer-sync", "rng-independence", *_REDUCED,
         asserted=[_READ_AFTER]),
    *_at(_DDP, "register_comm_hook", "which ranks are averaged later, on purpose", *_STATE),
    *_at(_DDP, "no_sync", "which backwards are not to reduce", "reducer-coverage", "gradient-sync"),
    *_at(_DDP, "will_sync_module_buffers", "which forwards broadcast buffers", "buffer-sync", *_CALLS),
    *_on(_DDP, "require_backward_grad_sync", "which backwards reduce", *_REDUCED, asserted=[_READ_AFTER]),
    *_on(_DDP, "_module_parameters", "which parameters are reduced", *_REDUCED, "parameter-sync", _READS[-1]),
    *_on(_DDP, "parameters_to_ignore", "which parameters are left to the ranks", *_STATE),
    *_on(_DDP, "process_group", "which ranks a wrapper reduces over", *_WRAPPED),
    *_on(_DDP, "broadcast_buffers", "which wrappers broadcast buffers", "buffer-sync"),
    *_on(_DDP, "device_ids", "which devices a wrapper was given", "device-placement", asserted=["device-placement"]),
    *_on(_DDP, "output_device", "which devices a wrapper was given", asserted=["device-placement"]),
    *_on(_DDP, "_has_rebuilt_buckets", "which forward lays out buckets anew", *_CALLS),
    *_on(_DDP, "reducer", "which backwards have reduced everything", *_CALLS),
    *_on(_DDP, "_comm_hooks", "which wrappers may reduce in the order of ranks", asserted=["resume-equivalence"]),
    *_at("torch._C._distributed_c10d.Reducer", "_check_reducer_finalized", "which backwards have reduced everything",
         *_CALLS),
    *_at("torch.nn.parallel.distributed", "_find_tensors", "which backwards come through a wrapper", *_REDUCED),
    *_at("torch.autograd", "backward", "every backward", *_REDUCED, *_DATA, asserted=[_READ_AFTER]),
    # modules
    *_at(_MODULE, "__call__", "which modules are called", "buffer-sync", "parameter-sync", "reducer-coverage"),
    *_at(_MODULE, "_apply", "which wrapped modules are moved or cast", "gradient-sync"),
    *_at(_MODULE, "zero_grad", "where gradients begin anew", "reducer-coverage"),
    *_on(_MODULE, "_buffers _non_persistent_buffers_set", "which buffers are to agree", "buffer-sync",
         "initial-broadcast", asserted=_HELD),
    *_on(_MODULE, "_parameters _modules", "where parameters are", "reducer-coverage", asserted=_HELD),
    *_at("torch.nn.modules.module", "register_module_parameter_registration_hook", "where parameters come from",
         "reducer-coverage"),
    # optimizers
    *_at(_OPTIMIZER, "__init__", "which optimizers are built", *_STATE),
    *_at(_OPTIMIZER, "zero_grad", "where gradients begin anew", "reducer-coverage"),
    *_at("torch.optim.optimizer", "register_optimizer_step_pre_hook", "what optimizers step on", *_STATE, *_READS),
    *_at("torch.optim.optimizer", "register_optimizer_step_post_hook", "what optimizers have stepped", *_STATE, *_READS,
         asserted=["assert_replicas_identical"]),
    *_at("torch.distributed.fsdp._common_utils", "_is_fsdp_flattened", "which parameters are shards of FSDP", *_STATE,
         later=True),
    *_at(_SCALER, "step", "which optimizers have a scaler", "optimizer-sync", "gradient-sync"),
    *_on(_SCALER, "_scale", "the scale of gradients", "optimizer-sync", "gradient-sync"),
    *_at(_SCHEDULER, "step", "how often schedulers are stepped", "optimizer-sync"),
    *_on(_SCHEDULER, "optimizer last_epoch", "how often schedulers are stepped", "optimizer-sync"),
    # groups, and where ranks meet
    *_at(_C10D, "init_process_group", "which processes are ranks", *_ALL, asserted=[_READ_AFTER]),
    *_at(_C10D, "_get_default_store", "which processes are of one group", *_ALL),
    *_at(_C10D, "destroy_process_group", "which ranks have left", "process-hygiene", *_CALLS),
    *_at(_C10D, "new_group _get_default_group GroupMember", "which groups there are", *_WRAPPED, _READ_AFTER,
         asserted=[_READ_AFTER]),
    *_at(f"{_C10D}.GroupMember", "NON_GROUP_MEMBER", "who is in no group", *_CALLS, asserted=[_READ_AFTER]),
    *_at(_C10D, "_world", "which groups are left", "process-hygiene"),
    *_at(f"{_C10D}._world", "pg_map", "which groups are left", "process-hygiene"),
    *_meetings(_C10D, "all_reduce broadcast all_gather all_gather_into_tensor reduce reduce_scatter gather scatter"),
    *_meetings(_C10D, "reduce_scatter_tensor all_to_all all_to_all_single barrier monitored_barrier"),
    *_meetings(_C10D, "all_gather_object broadcast_object_list gather_object scatter_object_list"),
    *_meetings(_C10D, "send recv isend irecv"),
    *_meetings(_C10D, "send_object_list recv_object_list all_gather_single reduce_scatter_single", optional=True),
    *_meetings(_C10D, "all_reduce_coalesced all_gather_coalesced _all_gather_base _reduce_scatter_base", optional=True),
    *_meetings(_C10D, "_resolve_process_group"),
    *_meetings("torch._C._distributed_c10d.Work", "wait"),
    *_meetings(_FUNCTIONAL, "all_reduce broadcast all_gather_tensor reduce_scatter_tensor all_to_all_single",
               later=True),
    *_meetings(_FUNCTIONAL, "all_gather_single reduce_scatter_single all_gather_tensor_autograd", later=True,
               optional=True),
    *_meetings(_FUNCTIONAL, "reduce_scatter_tensor_autograd all_to_all_single_autograd", later=True, optional=True),
    *_meetings(_FUNCTIONAL, "all_gather_single_autograd reduce_scatter_single_autograd", later=True, optional=True),
    *_at("torch.distributed.ProcessGroup", "allreduce allreduce_coalesced allgather _allgather_base reduce_scatter "
         "_reduce_scatter_base alltoall alltoall_base barrier broadcast scatter reduce gather",
         "every call of a group's own methods", asserted=[_READ_AFTER]),
    *_files("torch.distributed.Store", "set wait get", "which keys ranks wait for", _READ_AFTER),
    *_at(_JOIN, "__enter__ __exit__", "where ranks may have uneven inputs", *_STATE, *_CALLS, *_DATA),
    *_on(_JOIN, "_enable _process_group", "which ranks leave a join together", *_CALLS),
    # data
    *_at("torch.utils.data.DataLoader", "__init__", "which loaders there are", *_DATA, "rng-independence"),
    *_at(_SAMPLER, "__init__", "where samplers are built", *_DATA),
    *_at(_SAMPLER, "__iter__", "the order of every pass", asserted=["epoch-reshuffle"]),
    *_at(f"{_DATALOADER}._BaseDataLoaderIter", "__init__ _next_index __next__", "every pass and its batches", *_DATA,
         "rng-independence"),
    *_on(f"{_DATALOADER}._BaseDataLoaderIter", "_base_seed", "what workers are seeded by", *_DATA, "rng-independence"),
    *_at(f"{_DATALOADER}._MultiProcessingDataLoaderIter", "_reset", "passes of workers that stay", *_DATA,
         "rng-independence"),
    Seam(f"{_DATALOADER}._MultiProcessingDataLoaderIter._in_order", "which batches come in order", _DATA,
         by_instances=True, since=(2, 6)),
    *_at("torch.utils.data._utils.fetch._MapDatasetFetcher", "fetch", "what is drawn for samples", *_DATA,
         "rng-independence"),
    *_at("torch.utils.data._utils.fetch._IterableDatasetFetcher", "fetch", "what is drawn for samples", *_DATA,
         "rng-independence"),
    *_at("torch", "default_generator manual_seed set_rng_state", "random states", *_DATA, "rng-independence"),
    *_at("torch.cuda", "default_generators manual_seed manual_seed_all set_rng_state set_rng_state_all",
         "random states", "rng-independence"),
    *_at("random", "seed setstate", "random states", *_DATA, "rng-independence"),
    *_at("numpy.random", "seed set_state", "random states", *_DATA, "rng-independence", later=True),
    # files
    *_files("torch.serialization", "save", "what is saved", *_WRITES),
    *_files("torch.serialization", "load", "what is loaded", *_READS),
    *_at(_OPENER, "__init__", "which files torch.save opens", *_WRITES, asserted=_WRITES),
    *_files(_OPENER, "__exit__", "which files torch.save opens", *_WRITES),
    *_files("torch.jit._script.RecursiveScriptModule", "save", "what is saved", *_WRITES),
    *_files("torch.jit._serialization", "save", "what is saved", *_WRITES),
    *_files("torch.jit._serialization", "load", "what is loaded", *_READS),
    *_files(_MODULE, "load_state_dict", "what is loaded into modules", *_READS),
    *_files(_OPTIMIZER, "load_state_dict", "what is loaded into optimizers", _READS[-1]),
    *_files(_SCHEDULER, "load_state_dict", "what is loaded into schedulers", _READS[-1]),
    *_files(_SCALER, "load_state_dict", "what is loaded into scalers", _READS[-1]),
    *_files("posixpath", "exists isfile isdir", "which files are waited for", _READ_AFTER),
    *_files("pathlib.Path", "exists is_file is_dir", "which files are waited for", _READ_AFTER),
    *_files("threading.Thread", "join", "which threads are waited for", _READ_AFTER),
    *_files("threading.Event", "wait", "which threads are waited for", _READ_AFTER),
    *_files("queue.Queue", "join get", "which threads are waited for", _READ_AFTER),
    *_files("concurrent.futures.Future", "result exception", "which threads are waited for", _READ_AFTER),
    *_files("concurrent.futures._base", "wait", "which threads are waited for", _READ_AFTER),
    *_files("threading", "_active", "which threads are waited for", _READ_AFTER),
    # processes
    *_at("threading.Thread", "start", "which threads are started", "process-hygiene"),
    *_at("threading", "_register_atexit", "what is left when a script is over", "process-hygiene"),
    *_at("multiprocessing.process", "_children", "which children end by themselves", "process-hygiene"),
    *_at(_PROCESS, "start", "which processes are started", "process-hygiene"),
    *_at("subprocess.Popen", "__init__", "which processes are started", "process-hygiene"),
    *_at(_PROCESS, "run", "what children raise, and leave", *STOPS, "process-hygiene"),
    *_at(_PROCESS, "_bootstrap", "how children end", *STOPS, "process-hygiene"),
    *_at("torch.multiprocessing.spawn", "_wrap", "what children raise", *STOPS),
    *_at("multiprocessing.popen_fork.Popen", "poll", "how children end", *STOPS),
    *_at("subprocess.Popen", "_handle_exitstatus", "how children end", *STOPS),
    *_at("os", "_exit", "which processes end at once", *STOPS, "process-hygiene"),
)
# fmt: on

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


def unjudgeable(check: str, assertion: str) -> str:
    """Why an assertion cannot be judged here, as a clause; empty where all that it rests on is there."""
    for seam in SEAMS:
        if {check, assertion}.intersection(seam.asserted) and seam.is_missing:
            return reason(seam.name, seam.of)
    return ""
