"""What of a collective's arguments has to be equal on all ranks: the tensor's size, the reduction, the source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import SENDS

COLLECTIVES = {
    "all_reduce": ("tensor", "op", ""),
    "all_reduce_coalesced": ("tensors", "op", ""),
    "broadcast": ("tensor", "", "src"),
    "all_gather": ("tensor", "", ""),
    "all_gather_coalesced": ("input_tensor_list", "", ""),
    "all_gather_into_tensor": ("input_tensor", "", ""),
    "all_gather_single": ("input_tensor", "", ""),
    "_all_gather_base": ("input_tensor", "", ""),
    "reduce": ("tensor", "op", "dst"),
    "reduce_scatter": ("output", "op", ""),
    "reduce_scatter_tensor": ("output", "op", ""),
    "reduce_scatter_single": ("output", "op", ""),
    "_reduce_scatter_base": ("output", "op", ""),
    "gather": ("tensor", "", "dst"),
    "scatter": ("tensor", "", "src"),
    "all_to_all": ("", "", ""),
    "all_to_all_single": ("input", "", ""),
    "barrier": ("", "", ""),
    "monitored_barrier": ("", "", ""),
    "all_gather_object": ("", "", ""),
    "broadcast_object_list": ("", "", "src"),
    "gather_object": ("", "", "dst"),
    "scatter_object_list": ("", "", "src"),
}
"""The arguments by which the ranks' calls are compared: the tensor, the reduction, the source or destination."""

FUNCTIONAL = {
    "all_reduce": "reduceOp",
    "broadcast": "",
    "all_gather_tensor": "",
    "all_gather_tensor_autograd": "",
    "all_gather_single": "",
    "all_gather_single_autograd": "",
    "reduce_scatter_tensor": "reduceOp",
    "reduce_scatter_tensor_autograd": "reduceOp",
    "reduce_scatter_single": "reduceOp",
    "reduce_scatter_single_autograd": "reduceOp",
    "all_to_all_single": "",
    "all_to_all_single_autograd": "",
}
"""Of ``torch.distributed._functional_collectives``, with the argument that names the reduction."""

_UNEVEN = {"all_gather": "tensor_list", "reduce_scatter": "input_list", "all_to_all_single": "input_split_sizes"}
"""Where ranks may have tensors of different sizes, and the argument that shows it."""

Described = tuple[str, int | None]
"""What has to be equal, and the global rank of the source or destination."""

_SHAPED = frozenset({"all_reduce", "all_reduce_coalesced", "reduce"})
"""Where elements are paired by place, so that another shape of as many means other pairs."""

_described: dict[tuple[Any, ...], str] = {}
"""By name, dtype, shape and reduction: a training makes the same calls again and again."""
MOST = 4096
"""Of them, before they are forgotten: a program may never send the same shape twice."""
_dtypes: dict[Any, str] = {}
_reductions: dict[Any, str] = {}


class Arguments:
    """The arguments of a call by their names, however they were given."""

    __slots__ = ("_args", "_kwargs", "_places")

    def __init__(self, places: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._places, self._args, self._kwargs = places, args, kwargs

    def get(self, name: str) -> Any:
        place = self._places.get(name, -1)
        return self._args[place] if 0 <= place < len(self._args) else self._kwargs.get(name)

    def all(self) -> Iterator[tuple[str, Any]]:
        """Every argument that was given."""
        yield from zip(self._places, self._args, strict=False)
        yield from self._kwargs.items()


def places(function: Callable[..., Any]) -> dict[str, int]:
    """The places of a function's parameters."""
    code = inspect.unwrap(function).__code__
    return {name: place for place, name in enumerate(code.co_varnames[: code.co_argcount])}


def of_collective(op: str, given: Arguments) -> Described:
    """What a collective is compared by."""
    tensor, reduction, peer = COLLECTIVES[op]
    return _what(op, tensor, reduction, given), _peer(given, peer) if peer else None


def _what(op: str, tensor: str, reduction: str, given: Arguments) -> str:
    one, how = given.get(tensor), given.get(reduction)
    if type(one) is not torch.Tensor or op in _UNEVEN:
        return _words(op, tensor, reduction, given)
    try:
        key = op, one.dtype, one.shape, how
        known = _described.get(key)
    except TypeError:  # a reduction with a factor of its own
        return _words(op, tensor, reduction, given)
    if known is None:
        if len(_described) >= MOST:
            _described.clear()
        known = _described[key] = _words(op, tensor, reduction, given)
    return known


def _words(op: str, tensor: str, reduction: str, given: Arguments) -> str:
    words = [_size(op, given.get(tensor), op in _UNEVEN and _uneven(given, op))] if tensor else []
    if reduction:
        words.append(_reduction(given.get(reduction)))
    if op == "broadcast_object_list":
        words.append(f"{len(given.get('object_list'))} objects")
    return " ".join(words)


def of_pair(op: str, given: Arguments) -> Described:
    """The tag and the partner; None for a receiver that takes what comes."""
    name = "dst" if op in SENDS else "src"
    tag = given.get("tag")
    told = given.get(name) is not None or given.get(f"group_{name}") is not None
    return f"tag {tag}" if tag else "", _peer(given, name) if told else None


def of_functional(op: str, given: Arguments) -> Described:
    """The same of a functional collective."""
    words = [] if "all_to_all" in op else [_size(op, given.get("self"), False)]
    if FUNCTIONAL[op]:
        words.append(str(given.get(FUNCTIONAL[op])).lower())
    return " ".join(words), given.get("src") if op == "broadcast" else None


def ranks_of(ranks: Iterable[Any] | None) -> str:
    """The ranks of a group to be made."""
    return "all ranks" if ranks is None else "ranks " + ",".join(map(str, sorted(ranks)))


def _peer(given: Arguments, name: str) -> int:
    in_group = given.get(f"group_{name}")
    if in_group is None:
        return int(given.get(name) or 0)
    group = given.get("group")
    return int(in_group) if group is None else c10d.get_global_rank(group, in_group)


def _size(op: str, tensors: Any, uneven: bool) -> str:
    if not isinstance(tensors, torch.Tensor):
        return " + ".join(_size(op, t, False) for t in list(tensors)[:50])
    if uneven:
        return _dtype(tensors)
    if op in _SHAPED and tensors.dim() > 1:  # dimensions of one element make no difference
        sizes = [size for size in tensors.shape if size != 1]
        if len(sizes) > 1:
            return f"{_dtype(tensors)}[{', '.join(map(str, sizes))}]"
    return f"{_dtype(tensors)} x {tensors.numel()}"


def _dtype(tensor: torch.Tensor) -> str:
    dtype = tensor.dtype
    known = _dtypes.get(dtype)
    if known is None:
        known = _dtypes[dtype] = str(dtype).removeprefix("torch.")
    return known


def _uneven(given: Arguments, op: str) -> bool:
    """Whether it is meant that ranks have tensors of other sizes."""
    other = given.get(_UNEVEN[op])
    if other is None or op == "all_to_all_single":
        return bool(other)
    return len({t.numel() for t in other}) > 1


def _reduction(op: Any) -> str:
    if op is None:
        return "sum"
    try:
        known = _reductions.get(op)
        if known is None:
            known = _reductions[op] = str(op).rpartition(".")[2].lower()
    except TypeError:
        return str(op)
    return known
