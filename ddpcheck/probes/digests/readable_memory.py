"""What can be looked at of a tensor: the one place that says whose memory may be read.

A tensor may say that it is strided, contiguous and on the CPU, and have no memory: a wrapper subclass (DTensor is
one), a view of a storage that was freed (as FSDP does), a tensor of a transform or of a compiler. To read from where
it says that it lies would end the program, so every look at elements goes through here.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.unwatchable_moments import is_out_of_memory

MOST_DENSE = 256 * 1024 * 1024
"""Bytes of the dense form up to which a sparse tensor is looked at: a gradient of an embedding may be far larger so."""

LOOKED_AT = ("cpu", "cuda")
"""The kinds of devices on which a watched program's tensors are looked at; from others they would be fetched first."""

FSDP = "FullyShardedDataParallel"
DTENSOR = "DTensor"

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_BARE: Any = torch.Tensor.__torch_dispatch__
"""What a class has whose tensors torch itself operates on, and not the class."""


def memory(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Address and size, in bytes, of elements that lie side by side in the CPU's memory; None for all other tensors.

    Every step asks this of every tensor, so it has to take no more than a microsecond.
    """
    return _in_a_row(tensor) if type(tensor) in _PLAIN and tensor.is_cpu else None


def _in_a_row(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The same of a tensor of torch's own, on any device."""
    try:
        if tensor.layout is not torch.strided or not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
            return None
        size = tensor.nbytes
        if not size:
            return 0, 0
        if tensor.storage_offset() * tensor.element_size() + size > tensor.untyped_storage().nbytes():
            return None
        address = tensor.data_ptr()
    except RuntimeError as error:  # a tensor of a transform has no storage that could be asked for
        signal_exceptions.let_through(error)
        return None
    return (address, size) if address else None


def strided(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same elements as a tensor of no class and no graph, where they lie in memory now; None if they do not.

    It is for looking at, on whatever device it is. Of a DTensor it is the part of this rank.
    """
    try:
        return _strided(tensor)
    except Exception as error:  # a class of the user's own may do anything when it is looked at
        signal_exceptions.let_through(error)
        return None


def _strided(tensor: torch.Tensor) -> torch.Tensor | None:
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if is_dtensor(tensor):
            # Without autograd this hands out what there is: nothing is gathered, and nothing waited for.
            tensor = tensor.to_local()  # type: ignore[attr-defined]
        if not _is_torchs_own(tensor) or tensor.layout is not torch.strided:
            return None
        if not tensor.numel():
            return tensor.detach()
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        needed = (tensor.storage_offset() + reach) * tensor.element_size()
        if needed > tensor.untyped_storage().nbytes() or not tensor.data_ptr():
            return None
        return tensor.detach()


def in_a_row(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same elements, where they lie side by side in their order on whatever device; None for all other tensors."""
    if type(tensor) in _PLAIN and _in_a_row(tensor) is not None and not tensor.is_quantized and not tensor.is_nested:
        return tensor.detach()
    return None


def local(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements side by side in their order, where they are: as :func:`strided`, and of a sparse tensor as well.

    Raises torch's error where there is no memory for a copy that this takes.
    """
    plain = in_a_row(tensor)
    if plain is not None:
        return plain
    plain = strided(tensor)
    with torch.no_grad():
        if plain is None:
            plain = _dense(tensor)
        if plain is None:
            return None
        whole = plain.int_repr() if plain.is_quantized else plain.resolve_conj().resolve_neg()
        return whole.contiguous()


def _dense(tensor: torch.Tensor) -> torch.Tensor | None:
    """The dense form of a sparse tensor, or of one that is laid out for a library."""
    if type(tensor) not in _PLAIN or tensor.layout is torch.strided or tensor.is_meta:
        return None
    if tensor.numel() * tensor.element_size() > MOST_DENSE:
        return None
    try:
        return strided(tensor.detach().to_dense())
    except (RuntimeError, TypeError) as error:  # a layout that has no such form
        signal_exceptions.let_through(error)
        if is_out_of_memory(error):
            raise
        return None


def _is_torchs_own(tensor: torch.Tensor) -> bool:
    """Whether torch itself operates on it, and it has all its elements."""
    return type(tensor) in _PLAIN or (type(tensor).__torch_dispatch__ is _BARE and not is_lazy(tensor))


def watches_operations(tensor: torch.Tensor) -> bool:
    """Whether a class of the program's own is told of each operation on it, also of those that only look."""
    return type(tensor).__torch_dispatch__ is not _BARE and not is_dtensor(tensor)


def may_have_storage(tensor: torch.Tensor) -> bool:
    """Whether `storage` may find one, as far as its class says: a DTensor has none."""
    kind = type(tensor)
    return kind in _PLAIN or kind.__torch_dispatch__ is _BARE


def is_dtensor(tensor: Any) -> bool:
    """Whether it is a DTensor: a part of a tensor that lies on several ranks, or a copy of it."""
    if type(tensor) in _PLAIN:
        return False
    for name in ("torch.distributed.tensor", "torch.distributed._tensor"):  # the latter up to torch 2.4
        kind = getattr(sys.modules.get(name), "DTensor", None)
        if kind is not None:
            return isinstance(tensor, kind)
    return False


def part(tensor: Any) -> torch.Tensor | None:
    """The plain tensor in which a DTensor has the part of this rank; None where it is still on its way."""
    own = attribute(tensor, "_local_tensor", None)
    return own if type(own) in _PLAIN else None


def own_part(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same tensor, or the part of this rank where it is a DTensor; None where that is still on its way.

    And None of one of a class that sees what is done with its tensors, and does it itself.
    """
    if type(tensor) in _PLAIN:
        return tensor
    return part(tensor) if is_dtensor(tensor) else tensor if _is_torchs_own(tensor) else None


def is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether its elements, or those of its part, lie in the CPU's memory: a look at them is not waited for."""
    own = own_part(tensor)
    return own is not None and memory(own) is not None


def storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage that a tensor's elements lie in, wherever that is: it tells which tensors are one, by identity."""
    try:
        if type(tensor) not in _PLAIN and not _is_torchs_own(tensor):
            return None
        return tensor.untyped_storage() if tensor.layout is torch.strided else None
    except RuntimeError as error:  # a tensor of a transform has none
        signal_exceptions.let_through(error)
        return None


def unseen(tensor: torch.Tensor) -> str:
    """What a tensor is that is not compared with another rank's; empty for one that is.

    A shard is another part on each rank, by right; and of what cannot be looked at nothing is known.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return _unseen(tensor)


def _unseen(tensor: torch.Tensor) -> str:
    try:
        if is_dtensor(tensor):
            return DTENSOR
        if is_of_fsdp(tensor):
            return FSDP
        if memory(tensor) is not None:
            return ""
        if not _is_torchs_own(tensor):
            return type(tensor).__name__
        where = tensor.device.type
        if where not in LOOKED_AT:
            return f"tensor on {where}"
        return "" if tensor.layout is not torch.strided or strided(tensor) is not None else "tensor without memory"
    except Exception as error:  # a class of the user's own may do anything when it is looked at
        signal_exceptions.let_through(error)
        return type(tensor).__name__


def is_of_fsdp(tensor: torch.Tensor) -> bool:
    """Whether FSDP has made it: a plain tensor, of the part that this rank has."""
    home = sys.modules.get("torch.distributed.fsdp._common_utils")
    return home is not None and bool(attribute(home, "_is_fsdp_flattened", lambda _: False)(tensor))


def is_shared(tensor: torch.Tensor) -> bool:
    """Whether other processes may write to its elements."""
    return memory(tensor) is not None and bool(tensor.is_shared())  # type: ignore[no-untyped-call]
