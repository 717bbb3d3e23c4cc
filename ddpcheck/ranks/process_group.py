"""The process group of a rank: made over a file, bound to loopback, gone afterwards."""

from __future__ import annotations

import functools
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from ddpcheck.gpus import leases, visible_devices
from ddpcheck.vocabulary.model import Plan

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"

_kept: list[object] = []
"""The groups of this rank, to its end: a test may destroy its group, and then let its model go, which is the last to
hold it. torch 2.13 waits for gloo's threads there, with the interpreter locked, while such a thread may need the
interpreter, to let go of the context in which a backward pass has asked for an all-reduce: both wait for ever."""


def environment(plan: Plan, rank: int, run_dir: str) -> dict[str, str]:
    """What a launcher would have put into the environment, where sockets may listen, and which GPUs are seen.

    No address and no port: the group exists before the test begins.
    """
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(plan.world_size),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "NCCL_SOCKET_IFNAME": LOOPBACK,
    }
    if plan.gpus and not plan.simulated:
        found[visible_devices.VARIABLE] = ",".join(gpu.token for gpu in plan.gpus)
        # Whatever the test starts has its GPUs, and leases them from nobody else.
        found[leases.FOLDER_VARIABLE] = os.fspath(Path(run_dir) / "leases")
        found |= _order(plan)
    # A module may have set them when it was imported: that is the caller's, too.
    found |= {name: value for name, value in plan.nccl_variables.items() if name not in os.environ}
    return found


def _order(plan: Plan) -> dict[str, str]:
    """The order in which the indices of the plan's GPUs count, where this process has been given another one since."""
    orders = {gpu.order for gpu in plan.gpus if gpu.token.isdigit()}
    if plan.simulated or not orders or os.environ.get(visible_devices.ORDER, "") in orders:
        return {}
    return {visible_devices.ORDER: orders.pop() or visible_devices.DEFAULT_ORDER}


def join(plan: Plan, rank: int, run_dir: str) -> None:
    """Join the default process group; returns when this rank is connected to all others.

    A file store in the private folder of this run needs no port. Its own
    timeouts lie beyond the test's, so that the deadline is reported as a deadline.
    """
    import torch
    import torch.distributed as dist

    from ddpcheck.ranks.rendezvous import PromptFileStore

    if dist.is_initialized():
        raise RuntimeError(
            f"importing {plan.path} made a default process group; ddpcheck makes the group of every test, "
            "so let the module make none"
        )
    if plan.device == "cuda":
        os.environ.update(_order(plan))  # the test's module has been imported since
        torch.cuda.set_device(plan.gpu_of(rank))
    bound = _bound(plan, rank)
    path = os.fspath(Path(run_dir) / "store")
    # NCCL's threads ask their store at any time, and must not wait for the interpreter's lock.
    make_store = PromptFileStore if plan.backend == "gloo" else dist.FileStore  # type: ignore[attr-defined]
    dist.init_process_group(
        plan.backend,
        store=make_store(path, plan.world_size),
        rank=rank,
        world_size=plan.world_size,
        timeout=timedelta(seconds=plan.timeout + 120),
        **bound,
    )
    if bound:
        _let_members_alone_make_groups()
    _kept.append(dist.group.WORLD)


def _bound(plan: Plan, rank: int) -> dict[str, Any]:
    """The one device of this rank, for a backend that makes its connections there and then.

    So NCCL's first start, which may take long, is no part of the test's time, and what it fails for is said before
    the body begins. gloo would not connect earlier, and takes tensors from anywhere. A rank with several GPUs is bound
    to none where NCCL would then refuse tensors on the others.
    """
    import torch

    if plan.device != "cuda" or plan.simulated or plan.backend != "nccl":
        return {}
    if len(plan.gpus) > plan.world_size and not takes_one_device_only():
        return {}
    return {"device_id": torch.device("cuda", plan.gpu_of(rank))}


def takes_one_device_only() -> bool:
    """Whether a group for NCCL takes tensors of one device in each rank, as from torch 2.15 on, and is bound to it."""
    from torch.distributed import distributed_c10d as c10d

    # 2.14 has that backend already, as a choice and without this choice of a device.
    return hasattr(c10d, "_nccl2_device") and os.environ.get("TORCH_DIST_USE_NCCL2") != "0"


def _let_members_alone_make_groups() -> None:
    """Make groups with ``use_local_synchronization=True`` as if the default group was bound to no device.

    Torch splits a bound group for a new one, and all its ranks take part in a split: where the members alone make the
    new one, they would wait for ever for the others, and in a program whose group is not bound they do not.
    """
    import torch
    from torch.distributed import distributed_c10d as c10d

    original = c10d.new_group

    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        default = c10d._get_default_group() if c10d.is_initialized() else None
        if default is None or not kwargs.get("use_local_synchronization"):
            return original(*args, **kwargs)
        bound, default.bound_device_id = default.bound_device_id, None
        try:
            return original(*args, **kwargs)
        finally:
            default.bound_device_id = bound

    for module in (c10d, torch.distributed):
        module.new_group = new_group  # type: ignore[attr-defined]


def leave(plan: Plan) -> None:
    """Destroy what groups there are, where that does more than the end of the process.

    For gloo it does not: its threads are only waited for, up to 10 ms each. A
    test may have destroyed its groups itself, or made some of another backend.
    """
    import torch
    import torch.distributed as dist

    on_gpu = not plan.simulated and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if dist.is_initialized() and (on_gpu or plan.backend != "gloo"):
        dist.destroy_process_group()
