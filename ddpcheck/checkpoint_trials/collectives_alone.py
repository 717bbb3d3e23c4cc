"""Collectives that return at once, for a forked copy of a rank: its peers are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import distributed as ddp

from ddpcheck.probes.recording import patching, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places

PAIRWISE = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")


class NoPeer(RuntimeError):
    """A copy of a rank needs what only another rank could send."""


class _Done:
    """A collective that is over."""

    def wait(self, *_: Any, **__: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return []

    def get_future(self) -> torch.futures.Future[list[Any]]:
        done: torch.futures.Future[list[Any]] = torch.futures.Future()
        done.set_result([])
        return done


_alone_already = False
_listener: Callable[[], object] | None = None


def listen(told: Callable[[], object]) -> None:
    """Have this called before each collective, where all ranks would wait for each other."""
    global _listener
    _listener = told


def be_alone() -> None:
    """From now on every collective is over at once, as if all ranks had come with what this one has."""
    global _alone_already
    if _alone_already:  # a copy of a copy
        return
    _alone_already = True
    for name in (*_MOVES, *_IN_PLACE):
        if hasattr(c10d, name):
            patching.replace(c10d, name, _alone(name, getattr(c10d, name)))
    for name in PAIRWISE:
        if hasattr(c10d, name):
            patching.replace(c10d, name, _refused)
    patching.replace(c10d, "new_group", lambda *args, **kwargs: c10d.GroupMember.WORLD)
    # DistributedDataParallel's constructor: what it has to find equal, and what it sends.
    for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
        if hasattr(ddp, name):
            setattr(ddp, name, lambda *args, **kwargs: None)
    patching.rebind(user_lines.is_users_file)


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise NoPeer("a forked copy of a rank has nobody to send to or to receive from")


def _alone(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    where = places(original)

    def collective(*args: Any, **kwargs: Any) -> Any:
        if _listener is not None:
            _listener()
        given = Arguments(where, args, kwargs)
        move = _MOVES.get(name)
        if move is not None:
            move(given)
        return _Done() if given.get("async_op") else None

    return collective


def _size(given: Arguments) -> int:
    return int(c10d.get_world_size(given.get("group")))


def _rank(given: Arguments) -> int:
    return int(c10d.get_rank(given.get("group")))


def _gathered_tensors(given: Arguments) -> None:
    for one in given.get("tensor_list") or given.get("gather_list") or ():
        one.copy_(given.get("tensor"))


def _gathered_flat(given: Arguments) -> None:
    own, together = given.get("input_tensor"), given.get("output_tensor")
    if own is not None and together is not None:
        together.copy_(torch.cat([own.reshape(-1)] * _size(given)).reshape(together.shape))


def _gathered_objects(given: Arguments) -> None:
    into = given.get("object_list") or given.get("object_gather_list")
    if into is not None:
        into[:] = [given.get("obj")] * len(into)


def _broadcast_objects(given: Arguments) -> None:
    source = given.get("src")
    if source is not None and source != c10d.get_rank():
        raise NoPeer(f"a forked copy of rank {c10d.get_rank()} cannot be sent what rank {source} has")


def _scattered(given: Arguments) -> None:
    parts = given.get("scatter_list") or given.get("input_list")
    into = given.get("tensor") if given.get("scatter_list") else given.get("output")
    if not parts:
        raise NoPeer(f"a forked copy of rank {c10d.get_rank()} cannot be sent its part")
    into.copy_(parts[_rank(given)])


def _scattered_objects(given: Arguments) -> None:
    parts = given.get("scatter_object_input_list")
    if not parts:
        raise NoPeer(f"a forked copy of rank {c10d.get_rank()} cannot be sent its part")
    given.get("scatter_object_output_list")[0] = parts[_rank(given)]


def _exchanged(given: Arguments) -> None:
    raise NoPeer("a forked copy of a rank has nobody to exchange with")


_MOVES: dict[str, Callable[[Arguments], None]] = {
    "all_gather": _gathered_tensors,
    "gather": _gathered_tensors,
    "all_gather_into_tensor": _gathered_flat,
    "_all_gather_base": _gathered_flat,
    "all_gather_object": _gathered_objects,
    "gather_object": _gathered_objects,
    "broadcast_object_list": _broadcast_objects,
    "scatter": _scattered,
    "scatter_object_list": _scattered_objects,
    "reduce_scatter": _scattered,
    "all_to_all": _exchanged,
    "all_to_all_single": _exchanged,
}
"""What a collective puts where."""
_IN_PLACE = (
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "all_gather_coalesced",
    "all_gather_single",
    "reduce",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "_reduce_scatter_base",
    "barrier",
    "monitored_barrier",
)
"""Those that leave this rank's own values as they are."""
