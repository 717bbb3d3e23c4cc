"""Every collective that the user's code calls, put on record: what a hang or a race is read from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.join import Join
from torch.distributed.distributed_c10d import Work

from ddpcheck.evidence import Call, Outlived
from ddpcheck.probes.collectives import call_log, one_call, operators
from ddpcheck.probes.collectives.exchange import Exchange, is_of_a_group, is_the_programs, ranks_of
from ddpcheck.probes.collectives.one_call import Pending, batch, call, issued, of_work, set_joined, unwatched, wait
from ddpcheck.probes.collectives.process_groups import group_key
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.files import small_files
from ddpcheck.probes.optimizers import gradient_events, program_reductions
from ddpcheck.probes.processes import endings, main_thread
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import around
from ddpcheck.probes.recording.unwatchable_moments import overlooked

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_FSDP = "torch.distributed.fsdp._fully_shard."

__all__ = ["call", "issued", "set_joined", "watch"]


_waits: list[Any] = []
"""What stands around Work.wait, by which a function of torch's waits for the call that it has made."""


def watch() -> None:
    """Record every collective from now on."""
    operators.watch("c10d", _around_operator, is_of_a_group, unless=_is_a_reducers)
    operators.watch("_c10d_functional", _around_wait_tensor, lambda names: list(names) == ["tensor"])
    operators.watch("symm_mem", _around_another, lambda names: "group_name" in names)
    if around(getattr(torch._C._distributed_c10d, "Work", None), "wait", _around_wait, unless=one_call.is_within):
        _waits.append(Work.wait)
    around(c10d, "batch_isend_irecv", _around_batch)
    around(c10d, "new_group", _around_new_group)
    around(c10d, "init_process_group", _around_init)
    around(c10d, "destroy_process_group", _around_destroy)
    around(Join, "__exit__", _around_join)
    endings.before_end(_look_at_groups)
    endings.before_end(call_log.tell)
    endings.before_end(program_reductions.tell)
    main_thread.also(call_log.look)
    main_thread.also(one_call.let_go_in_time)


def _is_a_reducers() -> bool:
    """Whether DDP's reducer makes this call, and no communication hook: its reduction has a record of its own."""
    if not one_call.is_of_reduction():
        return False
    one_call.let_go()
    return not is_the_programs()


def _around_operator(original: Callable[..., Any], name: str, names: Sequence[str]) -> Callable[..., Any]:
    def operator(keys: Any, *args: Any, **kwargs: Any) -> Any:
        one_call.let_go()
        reduces = one_call.is_of_reduction()
        if recorder.current() is None or (unwatched() and not reduces):
            return original(keys, *args, **kwargs)
        exchange = Exchange.of(name, names, args, kwargs)
        if reduces:
            if exchange.is_of_the_program:
                _note_in_hook(exchange)
            return original(keys, *args, **kwargs)
        if any(tensor.is_meta for tensor in exchange.tensors) or (group := group_key(exchange.group)) == "?":
            return original(keys, *args, **kwargs)
        device = queued_calls.device_of(exchange)
        named = exchange.op, group, exchange.detail, exchange.peer, exchange.waits
        with call(*named, device=device, kind=exchange.kind) as this:
            ends = _tell(exchange, this.made) if this.made is not None else []
            result = original(keys, *args, **kwargs)
            if this.made is not None:
                work = _work_of(result)
                this.goes_on = _remember(exchange, work, Pending(this.made, this.mark, ends))
                for is_over in ends if exchange.waits and work is None else ():  # a device does it in its turn
                    is_over()
            return result

    return operator


def _around_another(original: Callable[..., Any], name: str, names: Sequence[str]) -> Callable[..., Any]:
    """What is exchanged by symmetric memory is not put in order."""

    def operator(*args: Any, **kwargs: Any) -> Any:
        overlooked("calls")
        return original(*args, **kwargs)

    return operator


def _tell(exchange: Exchange, made: Call) -> list[Callable[[], None]]:
    """Let those who follow calls know of one that begins; what is to be called when it is over."""
    ends: list[Callable[[], None]] = []
    if exchange.functional:
        program_reductions.note_unseen()
        _tell_within_backward(exchange, made.group)
    elif not _goes_over_fsdps_own(exchange):
        program_reductions.note(exchange, made)
        ends = gradient_events.COLLECTIVE.tell(exchange, made)
        _tell_within_backward(exchange, made.group)
        small_files.look()
    return ends


def _work_of(result: Any) -> Any:
    """What an operator gives to wait for; None where there is nothing more to wait for on the host."""
    boxed = result[-1] if isinstance(result, tuple) and result else result
    return Work.unbox(boxed) if isinstance(boxed, torch.ScriptObject) else None


def _remember(exchange: Exchange, work: Any, one: Pending) -> bool:
    """Remember what a call is waited for by; whether the function that was called waits for it, and is not over yet."""
    if exchange.functional or not (exchange.is_of_the_program or exchange.waits):
        one_call.remember_results(exchange.received, one)
        return False
    # Where the program, or a backend, has put a wait of its own in the place of ours, that need not come by here.
    if work is None or (exchange.waits and getattr(type(work), "wait", None) not in _waits):
        return False
    one_call.remember(work, one)
    return exchange.waits


def _goes_over_fsdps_own(exchange: Exchange) -> bool:
    """Whether FSDP2 has called for it, which gathers parameters from and into memory of its own.

    That is no memory of a parameter or a gradient, and there are two such calls for each layer and step.
    """
    return exchange.kind == "all_gather_into_tensor" and exchange.caller.startswith(_FSDP)


def _note_in_hook(exchange: Exchange) -> None:
    """A communication hook of the user's, by which DDP reduces, has called, or what else runs in that backward()."""
    group = group_key(exchange.group)
    WRAPPERS.hooked_over.add(group)
    _tell_within_backward(exchange, group)


def _tell_within_backward(exchange: Exchange, group: str) -> None:
    if gradient_events.is_within_backward():
        gradient_events.EXCHANGED.tell(exchange, group)


def _around_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    def waited(self: Any, *args: Any, **kwargs: Any) -> Any:
        if unwatched() or not (calls := of_work(self)):
            return original(self, *args, **kwargs)
        with wait(calls):
            return original(self, *args, **kwargs)

    return waited


def _around_wait_tensor(original: Callable[..., Any], name: str, names: Sequence[str]) -> Callable[..., Any]:
    """Whoever reads the result of a functional collective waits for it here."""

    def wait_tensor(keys: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if unwatched() or tensor.is_meta or not (calls := one_call.of_result(tensor)):
            return original(keys, tensor, *args, **kwargs)
        with wait(calls):
            return original(keys, tensor, *args, **kwargs)

    return wait_tensor


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
        with call("new_group", "world", ranks_of(ranks)):
            return original(*args, **kwargs)

    return new_group


def _around_destroy(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is held of an NCCL group outlives it: whether such a call was done can hardly be asked any more."""

    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        one_call.let_go(everywhere=True)
        _look_at_groups()
        writer = recorder.current()
        group = kwargs.get("group", args[0] if args else None)
        held: list[Call] = []
        if writer is not None and c10d.is_initialized() and group_key(group) == "world":
            held = one_call.unwaited() if "nccl" in str(c10d.get_backend()) else []
        if held and writer is not None:
            writer.write(Outlived(**writer.next(), number=len(held), op=held[0].op, site=held[0].site))
        return original(*args, **kwargs)

    return destroy_process_group


def _look_at_groups() -> None:
    """A group that is written in Python, and not as a backend of torch's, calls no operator of c10d's."""
    groups = getattr(getattr(c10d, "_world", None), "pg_map", {})
    if any(type(one) is not c10d.ProcessGroup for one in groups):
        overlooked("calls")


def _around_join(original: Callable[..., Any]) -> Callable[..., Any]:
    """A rank that leaves ``join()`` has waited for all others: a call like any other."""

    def __exit__(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        if kind is not None or not getattr(self, "_enable", True):
            return original(self, kind, error, trace)
        with call("join", getattr(self, "_process_group", None), always=True):
            return original(self, kind, error, trace)

    return __exit__
