"""All probes of a watched program, set up in one process."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from ddpcheck.evidence import ORACLE, Began, Joined
from ddpcheck.probes.files import paths
from ddpcheck.probes.recording import (
    compiler_frames,
    missing_seams,
    recorder,
    signal_exceptions,
    user_lines,
    warning_lines,
)
from ddpcheck.probes.recording.patching import defect
from ddpcheck.vocabulary.clock import clock

PROBES = (
    "recording.tensor_references",
    "processes.endings",
    "processes.later_records",
    "processes.sent_signals",
    "processes.span_log",
    "collectives.process_groups",
    "collectives.every_call",
    "collectives.stores",
    "ddp.parameter_names",
    "ddp.wrappers",
    "ddp.conversions",
    "ddp.no_sync",
    "ddp.recomputation",
    "layouts.ties",
    "layouts.unwritten",
    "layouts.parallelised",
    "optimizers.steps",
    "optimizers.gradient_events",
    "optimizers.filled_buffers",
    "optimizers.gradient_norms",
    "optimizers.parts_read",
    "optimizers.group_counts",
    "optimizers.moved_between",
    "optimizers.fsdp_syncs",
    "optimizers.unstepped",
    "optimizers.windows",
    "moments.unsharded",
    "moments.windows",
    "moments.loss_weights",
    "moments.losses",
    "ddp.module_calls",
    "data.dataloaders",
    "data.sequence_parts",
    "randomness.random_draws",
    "files.file_operations",
    "checkpoints.saves",
    "checkpoints.loads",
    "checkpoints.asked",
)
"""The modules of which each puts its own probes in place."""

_patched: set[str] = set()


def start(folder: Path, limit: int) -> None:
    """Record this process into the folder, from now on; torch has been imported."""
    open_file(folder, limit)
    with warnings.catch_warnings():  # the modules of torch that the probes import are not the program's choice
        warnings.simplefilter("ignore")
        try:
            patch()
        except Exception as error:
            defect(error)


def patch(probes: Iterable[str] = PROBES) -> None:
    """Put every probe in its place, once; without a recorder they do nothing."""
    if not _patched:
        os.register_at_fork(after_in_child=_forked)
    new = [name for name in probes if name not in _patched]
    if not new:
        return
    _patched.update(new)
    modules = []
    for name in new:
        try:
            modules.append(importlib.import_module(f"ddpcheck.probes.{name}"))
        except Exception as error:  # another torch than we know: the program must run all the same
            defect(error)
    warning_lines.rename()
    for module in modules:
        try:
            module.watch()
        except Exception as error:
            defect(error)
    missing_seams.look()
    compiler_frames.leave_alone()


def open_file(folder: Path, limit: int, worker_of: int | None = None) -> None:
    """Begin an evidence file for this process."""
    user_lines.reset()
    writer = recorder.begin(folder, limit)
    writer.write(
        Began(
            **writer.next(),
            pid=os.getpid(),
            parent=os.getppid(),
            host=socket.gethostname(),
            node=whole("GROUP_RANK") or 0,
            argv=[str(one) for one in getattr(sys, "argv", ())],
            folder=paths.working_folder(),
            wall=clock.wall(),
            rank=whole("RANK"),
            worker_of=worker_of,
            oracle=bool(os.environ.get(ORACLE)),
            gpus=_has_gpus(),
        )
    )
    missing_seams.write_all(writer)


def note_group(token: str) -> None:
    """Put on record that this process is a rank of the default group, which was there before it was watched."""
    import torch.distributed as dist

    writer = recorder.always()
    assert writer is not None
    writer.write(
        Joined(
            **writer.next(),
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            token=token,
            backend=dist.get_backend(),
            local_rank=whole("LOCAL_RANK"),
            site=0,
        )
    )


_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/dri")
"""What the drivers of GPUs put there: NVIDIA's, AMD's, that of Windows' Linux, and others'."""


def _has_gpus() -> bool:
    """Whether there may be a GPU for this process; neither torch nor a driver is asked, which might start it."""
    version = getattr(sys.modules.get("torch"), "version", None)
    built = any(getattr(version, name, None) for name in ("cuda", "hip", "xpu"))
    return built and os.environ.get("CUDA_VISIBLE_DEVICES") != "" and any(map(os.path.exists, _DRIVERS))


def whole(name: str) -> int | None:
    """The number that a variable of the environment holds; None where it holds none."""
    try:
        value = int(os.environ.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < 1 << 31 else None


def _forked() -> None:
    """A child that was forked has a file of its own, where one can be made."""
    writer = recorder.leave()
    if writer is not None and not isinstance(writer, recorder.InMemory):
        try:
            open_file(writer.folder, writer.limit, worker_of=os.getppid())
        except Exception as error:
            signal_exceptions.let_through(error)
