"""Every collective that the user's code calls, put on record: what a hang or a race is read from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.join import Join

from ddpcheck.evidence import PAIRWISE, Call, Outlived
from ddpcheck.probes.collectives import call_arguments, call_log, one_call
from ddpcheck.probes.collectives.call_arguments import Arguments, Described
from ddpcheck.probes.collectives.one_call import batch, call, issued, of_work, remember, set_joined, unwatched, wait
from ddpcheck.probes.collectives.process_groups import group_key
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.files import small_files
from ddpcheck.probes.optimizers import gradient_events, program_reductions
from ddpcheck.probes.processes import endings, main_thread
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.patching import around

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_GATHERS = ("all_gather_single", "all_gather_into_tensor")
_FSDP = "torch.distributed.fsdp._fully_shard."

__all__ = ["call", "issued", "set_joined", "watch"]


def watch() -> None:
    """Record every collective from now on."""
    for name in call_arguments.COLLECTIVES:
        around(c10d, name, partial(_around, op=name, describe=call_arguments.of_collective))
    for name in PAIRWISE:
        around(c10d, name, partial(_around, op=name, describe=call_arguments.of_pair))
    around(c10d, "batch_isend_irecv", _around_batch)
    around(c10d, "new_group", _around_new_group)
    around(c10d, "init_process_group", _around_init)
    around(c10d, "destroy_process_group", _around_destroy)
    around(getattr(torch._C._distributed_c10d, "Work", None), "wait", _around_wait, unless=one_call.is_within)
    around(Join, "__exit__", _around_join)
    endings.before_end(call_log.tell)
    endings.before_end(program_reductions.tell)
    for name in call_arguments.FUNCTIONAL:
        around(functional, name, partial(_around_functional, op=name))
    around(functional, "wait_tensor", _around_wait_tensor)
    main_thread.also(call_log.look)


def _around(
    original: Callable[..., Any], op: str, describe: Callable[[str, Arguments], Described]
) -> Callable[..., Any]:
    places = call_arguments.places(original)

    def collective(*args: Any, **kwargs: Any) -> Any:
        if unwatched():
            if one_call.is_of_reduction() and recorder.current() is not None:
                _note_in_hook(op, Arguments(places, args, kwargs))
            return original(*args, **kwargs)
        given = Arguments(places, args, kwargs)
        group = given.get("group")
        if not c10d.is_initialized() or _not_a_member(group):
            return original(*args, **kwargs)
        waits = not given.get("async_op") and op not in ("isend", "irecv")
        try:
            detail, peer = describe(op, given)
        except Exception as error:  # arguments that torch will refuse in its own words
            signal_exceptions.let_through(error)
            detail, peer = "", None
        device = queued_calls.device_of(op, group, given)
        with call(op, group, detail, peer, waits, device=device) as this:
            ends = []
            if this.made is not None and not _goes_over_fsdps_own(op):
                program_reductions.note(op, given, this.made)
                ends = gradient_events.COLLECTIVE.tell(op, given, this.made)
                _tell_within_backward(op, given, this.made.group, peer)
                small_files.look()
            result = original(*args, **kwargs)
            if not waits and this.made is not None:
                remember(result, this.made, this.mark)
            for is_over in ends:
                is_over()
            return result

    return collective


def _goes_over_fsdps_own(op: str) -> bool:
    """Whether what calls the probe of a collective is FSDP2, which gathers parameters from and into memory of its own.

    That is no memory of a parameter or a gradient, and there are two such calls for each layer and step.
    """
    return op in _GATHERS and str(sys._getframe(3).f_globals.get("__name__")).startswith(_FSDP)


def _note_in_hook(op: str, given: Arguments) -> None:
    """A communication hook of the user's, by which DDP reduces, has called, or what else runs in that backward()."""
    group = group_key(given.get("group"))
    WRAPPERS.hooked_over.add(group)
    _tell_within_backward(op, given, group, None)


def _tell_within_backward(op: str, given: Arguments, group: str, peer: int | None) -> None:
    if gradient_events.is_within_backward():
        gradient_events.EXCHANGED.tell(op, given, group, peer)


def _not_a_member(group: Any) -> bool:
    return group is not None and group is getattr(getattr(c10d, "GroupMember", None), "NON_GROUP_MEMBER", None)


def _around_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    def waited(self: Any, *args: Any, **kwargs: Any) -> Any:
        if unwatched() or not (calls := of_work(self)):
            return original(self, *args, **kwargs)
        with wait(calls):
            return original(self, *args, **kwargs)

    return waited


def _around_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Under NCCL the calls of a batch are one: it is waited for by one work for all of them."""

    def batch_isend_irecv(*args: Any, **kwargs: Any) -> Any:
        if unwatched():
            return original(*args, **kwargs)
        with batch() as works:
            result = original(*args, **kwargs)
            works += result if isinstance(result, list) else []
        return result

    return batch_isend_irecv


# --- functional collectives


def _around_functional(original: Callable[..., Any], op: str) -> Callable[..., Any]:
    places = call_arguments.places(original)

    def collective(*args: Any, **kwargs: Any) -> Any:
        if unwatched():
            return original(*args, **kwargs)
        given = Arguments(places, args, kwargs)
        try:
            group = _functional_group(given.get("group"))
            detail, peer = call_arguments.of_functional(op, given)
            device = queued_calls.device_of(op, group, given)
        except Exception as error:
            signal_exceptions.let_through(error)
            group = None
        if group is None or group_key(group) == "?":
            return original(*args, **kwargs)
        program_reductions.note_unseen()
        with call(op, group, detail, peer, waits=False, device=device) as this:
            if this.made is not None:
                _tell_within_backward(f"functional.{op}", given, this.made.group, peer)
            result = original(*args, **kwargs)
            if this.made is not None:
                one_call.remember_result(result, this.made, this.mark)
            return result

    return collective


def _around_wait_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever reads the result of a functional collective waits for it here."""

    def wait_tensor(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if unwatched() or not (calls := one_call.of_result(tensor)):
            return original(tensor, *args, **kwargs)
        with wait(calls):
            return original(tensor, *args, **kwargs)

    return wait_tensor


def _functional_group(group: Any) -> Any:
    """A group is given as itself, by its name, or as a dimension of a mesh."""
    if isinstance(group, tuple) and hasattr(group[0], "get_group"):
        group = group[0].get_group(*group[1:])
    elif hasattr(group, "get_group") and getattr(group, "ndim", 0) == 1:
        group = group.get_group()
    elif isinstance(group, str):
        resolve = getattr(c10d, "_resolve_process_group", None)
        group = resolve(group) if resolve is not None else None
    return group if isinstance(group, c10d.ProcessGroup) else None


# --- groups


def _around_init(original: Callable[..., Any]) -> Callable[..., Any]:
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        call_log.begin_again()
        return result

    return init_process_group


def _around_new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    """All ranks make a group, members or not, and wait for each other."""

    def new_group(*args: Any, **kwargs: Any) -> Any:
        ranks = kwargs.get("ranks", args[0] if args else None)
        if kwargs.get("use_local_synchronization") or not isinstance(ranks, (list, tuple, range, type(None))):
            return original(*args, **kwargs)
        with call("new_group", "world", call_arguments.ranks_of(ranks)):
            return original(*args, **kwargs)

    return new_group


def _around_destroy(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is held of an NCCL group outlives it: whether such a call was done can hardly be asked any more."""

    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        writer = recorder.current()
        group = kwargs.get("group", args[0] if args else None)
        held: list[Call] = []
        if writer is not None and c10d.is_initialized() and group_key(group) == "world":
            held = one_call.unwaited() if "nccl" in str(c10d.get_backend()) else []
        if held and writer is not None:
            writer.write(Outlived(**writer.next(), number=len(held), op=held[0].op, site=held[0].site))
        return original(*args, **kwargs)

    return destroy_process_group


def _around_join(original: Callable[..., Any]) -> Callable[..., Any]:
    """A rank that leaves ``join()`` has waited for all others: a call like any other."""

    def __exit__(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        if kind is not None or not getattr(self, "_enable", True):
            return original(self, kind, error, trace)
        with call("join", getattr(self, "_process_group", None), always=True):
            return original(self, kind, error, trace)

    return __exit__
