"""Where this rank's tensors are, and which devices are its own: looked up when an assertion asks."""

from __future__ import annotations

import contextlib
import gc
import socket
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import PackedSequence

from ddpcheck.evidence.placement import BATCH, StateTensor, Whereabouts, is_gpu
from ddpcheck.gpus import hardware_names
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.vocabulary.wording import count

Devices = Iterable[Any] | Callable[[int], Any] | None
"""What may be said of a rank's devices: the devices, or a function from the local rank to them."""


def facts(
    module: Any,
    *,
    given: torch.device,
    local_rank: int,
    batch: Mapping[str, Any],
    optimizer: Any = None,
    devices_per_rank: Any = None,
    devices: Devices = None,
    sharing: bool = False,
) -> Whereabouts:
    """All that this rank can say; what it cannot make out is reported as such, and never raised on one rank alone."""
    try:
        own, stated, order = _own(given, local_rank, devices_per_rank, devices)
        tensors = _tensors_of(module)
        arguments = {kind: dict(_within(batch[kind], kind)) for kind in BATCH if batch.get(kind) is not None}
        for kind, found in arguments.items():
            if not found:
                raise Unusable(f"{kind} that hold no tensor ({type(batch[kind]).__name__})")
        state = list(_state(module, optimizer))
    except Unusable as error:
        return Whereabouts(local_rank=local_rank, own=[], wrong=str(error))
    known = [*tensors.values(), *(t for found in arguments.values() for t in found.values())]
    model = {name: str(tensor.device) for name, tensor in tensors.items()}
    in_use = {d for d in (*own, *(str(t.device) for t in known), str(given)) if d.startswith("cuda")}
    left = _left(own, [*known, *(t for _, t in state), *_gradients(tensors)]) if in_use else {}
    return Whereabouts(
        local_rank=local_rank,
        own=own,
        stated=stated,
        order=order,
        host=socket.gethostname(),
        given=_indexed(given),
        sharing=bool(sharing),
        visible=torch.cuda.device_count() if in_use else None,
        hardware={device: name for device in sorted(in_use | left.keys()) if (name := _hardware(device))},
        current=_current() if in_use else "",
        model=model,
        device_ids=getattr(module, "device_ids", None) if isinstance(module, DistributedDataParallel) else None,
        output_device=getattr(module, "output_device", None) if isinstance(module, DistributedDataParallel) else None,
        batch={kind: {name: str(t.device) for name, t in found.items()} for kind, found in arguments.items()},
        state=[entry for entry, _ in state],
        left=left,
    )


class Unusable(ValueError):
    """An argument that says nothing about places; the text is the end of "found …"."""


# --- the devices that a rank has


def _own(given: torch.device, local_rank: int, per_rank: Any, devices: Devices) -> tuple[list[str], str, list[str]]:
    """The rank's devices, how they were said, and the order in which the model goes through them, where that was."""
    if per_rank is not None and devices is not None:
        raise Unusable("devices_per_rank and devices both given, which say the same thing")
    if per_rank is not None:
        if isinstance(per_rank, bool) or not isinstance(per_rank, int) or per_rank < 1:
            raise Unusable(f"devices_per_rank={per_rank!r}, which is no whole number of devices above 0")
        return [f"cuda:{per_rank * local_rank + i}" for i in range(per_rank)], f"devices_per_rank={per_rank}", []
    if devices is None:
        return [_indexed(given)], "", []
    said: Any = devices
    if callable(devices):
        try:
            said = devices(local_rank)
        except Exception as error:
            raise Unusable(f"devices({local_rank}) that raised {type(error).__name__}: {error}") from error
    listed = list(said) if isinstance(said, Iterable) and not isinstance(said, str) else [said]
    if not listed:
        raise Unusable("devices that name none")
    try:
        named = [_indexed(_as_device(device)) for device in listed]
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unusable(f"devices={listed!r}: {str(error).splitlines()[0]}") from error
    return list(dict.fromkeys(named)), "`devices`", [] if isinstance(said, Set) else named


def _as_device(said: Any) -> torch.device:
    """As torch takes devices; a number is a GPU also where there is none, which torch itself refuses to say."""
    return torch.device("cuda", said) if isinstance(said, int) and not isinstance(said, bool) else torch.device(said)


def _indexed(device: torch.device) -> str:
    """A device as its tensors name it: with an index, unless it is the CPU."""
    if device.type in ("cpu", "meta") or device.index is not None:
        return "cpu" if device.type == "cpu" else str(device)
    return (_current() or "cuda:0") if device.type == "cuda" else f"{device.type}:0"


def _current() -> str:
    try:
        return f"cuda:{torch.cuda.current_device()}"
    except Exception as error:  # no driver, no GPU, or a build without CUDA: each says so in its own class of error
        signal_exceptions.let_through(error)
        return ""


def _hardware(device: str) -> str:
    """What names the GPU itself; empty where nothing does."""
    found = torch.device(device)
    try:
        known = torch.cuda.get_device_properties(found)
    except NotImplementedError:  # a simulated device, which is none of those in CUDA_VISIBLE_DEVICES
        return ""
    except Exception as error:
        signal_exceptions.let_through(error)
        known = None
    return hardware_names.name_here(found.index or 0, known)


# --- the tensors


def _tensors_of(module: Any) -> dict[str, torch.Tensor]:
    if not isinstance(module, torch.nn.Module):
        raise Unusable(f"{type(module).__name__} in the place of a torch.nn.Module")
    bare = module.module if isinstance(module, DistributedDataParallel) else module
    # A tensor that several modules share is told in each of them: the model may end with one that it began with.
    parameters = bare.named_parameters(remove_duplicate=False)
    buffers = bare.named_buffers(remove_duplicate=False)
    return {**dict(parameters), **{f"{name} (buffer)": b for name, b in buffers}}


def _within(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in containers and objects, by the way to each; what cannot be looked into is refused by name."""
    seen: dict[int, Any] = {}  # what is in here is kept alive, so that no other thing gets its id
    stack = [(name, value)]  # and no recursion: a nest may be deeper than Python allows
    while stack:
        way, one = stack.pop()
        if isinstance(one, torch.Tensor):
            yield way, one
        elif isinstance(one, PackedSequence):
            stack.append((f"{way}.data", one.data))  # its batch sizes are on the CPU wherever it is
        elif isinstance(one, Iterator):
            raise Unusable(f"{way} ({type(one).__name__}), which can be gone through only once: pass what it gives")
        elif id(one) not in seen and not isinstance(one, _NO_NEST) and not hasattr(type(one), "__array__"):
            seen[id(one)] = one
            try:
                items = list(_items(one))
                known = {id(item) for _, item in items}
                attributes = [(f".{key}", held) for key, held in _attributes(one) if id(held) not in known]
            except Exception as error:
                raise Unusable(f"{way} ({type(one).__name__}), which raised {type(error).__name__}: {error}") from error
            stack += [(way + step, held) for step, held in reversed([*items, *attributes])]


_NO_NEST = (str, bytes, bytearray, memoryview, range, array, type, ModuleType, FunctionType, torch.nn.Module)
"""What holds no tensors of a batch, and would be long to go through, or lead away from it."""


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, Collection):
        for number, item in enumerate(value):
            yield f"[{number}]", item


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Those of the object itself, in its ``__dict__`` and its slots; no property is asked, which may do anything."""
    for name, held in getattr(value, "__dict__", {}).items():
        yield str(name), held
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and name != "__dict__":
                with contextlib.suppress(AttributeError):  # a slot that was never filled
                    yield name, member.__get__(value)


def _gradients(tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [t.grad for t in tensors.values() if t.is_leaf and t.grad is not None]


def _state(module: Any, optimizer: Any) -> Iterator[tuple[StateTensor, torch.Tensor]]:
    """The tensors of the optimizer's state, with the device of the parameter of each."""
    if optimizer is None:
        return
    state = getattr(optimizer, "state", None)
    if not isinstance(state, Mapping):
        raise Unusable(f"{type(optimizer).__name__} in the place of a torch.optim.Optimizer")
    names: dict[int, str] = {}
    for name, tensor in _tensors_of(module).items():
        names.setdefault(id(tensor), name)
    for parameter, entries in state.items():
        if not isinstance(parameter, torch.Tensor) or not isinstance(entries, Mapping):
            continue
        of = names.get(id(parameter), "a parameter outside of the model")
        for key, held in entries.items():
            for way, tensor in _within(held, str(key)):  # LBFGS keeps lists
                if tensor.dim() or tensor.device.type != "cpu":  # a count of steps is on the CPU on purpose
                    entry = StateTensor(name=f"{way} of {of}", device=str(tensor.device), wanted=str(parameter.device))
                    yield entry, tensor


# --- what else there is


def _left(own: Sequence[str], known: Iterable[torch.Tensor]) -> dict[str, str]:
    """Tensors on GPUs that are not this rank's own, beside those that are told by name; and memory."""
    named = {id(tensor) for tensor in known}
    if _strangers(own, named):
        gc.collect()  # what nobody holds is not left there
    told = {}
    for device, tensors in _strangers(own, named).items():
        more = ", …" if len(tensors) > 1 else ""
        told[device] = f"{count(len(tensors), 'tensor')} ({tensors[0]}{more})"
    for device, amount in _allocated().items():
        if device not in own and device not in told:
            told[device] = f"{count(amount, 'byte')} of memory"
    return told


def _strangers(own: Sequence[str], named: set[int]) -> dict[str, list[str]]:
    """The dtypes and shapes of other tensors, by their device."""
    found: dict[str, list[str]] = defaultdict(list)
    for thing in gc.get_objects():
        # By its type: to ask isinstance of anything at all may run what it has in the place of a class.
        if issubclass(type(thing), torch.Tensor) and id(thing) not in named:
            try:
                device = str(thing.device)
                if is_gpu(device) and device not in own:
                    found[device].append(f"{str(thing.dtype).removeprefix('torch.')}{list(thing.shape)}")
            except Exception as error:
                signal_exceptions.let_through(error)
                continue
    return found


def _allocated() -> dict[str, int]:
    """The bytes that torch's allocator holds for tensors of this process, by GPU."""
    try:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return {}
        amounts = {f"cuda:{i}": int(torch.cuda.memory_allocated(i)) for i in range(torch.cuda.device_count())}
    except Exception as error:  # simulated devices have no memory
        signal_exceptions.let_through(error)
        return {}
    return {device: amount for device, amount in amounts.items() if amount}
