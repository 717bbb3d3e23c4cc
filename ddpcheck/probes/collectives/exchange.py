"""One exchange between ranks, as an operator of c10d is called for it: what goes where, and what has to be equal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import UNNAMED

_GROUP = "process_group"
_FUNCTIONS = "torch.distributed.distributed_c10d"
_FUNCTIONAL = "torch.distributed._functional_collectives"
_AUTOGRAD = "torch.autograd"
_BATCH = "batch_isend_irecv"
"""The messages of a batch are sent and received by functions of their own."""
NEAR = 16
"""Frames in which the function of torch's is looked for that has called an operator: modes may lie between."""

_KINDS = {
    "_allgather_base_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "alltoall_base_": "all_to_all_single",
    "recv_any_source_": "recv",
}
"""What operators are called by torch.distributed, where it is no matter of underscores."""
_PARTS = (("allgather", "all_gather"), ("allreduce", "all_reduce"), ("alltoall", "all_to_all"))

_WITHOUT_TENSORS = ("barrier", "monitored_barrier")
_PLACES = "sparse_indices"
"""Where the elements of a sparse tensor lie."""
_ROOTS = ("root_rank", "dst", "src")
"""The arguments that name one rank of the group."""

_SHAPED = ("all_reduce", "reduce")
"""Where elements are paired by place, so that another shape of as many means other pairs."""

OBJECTS = ("obj", "object_list", "scatter_object_input_list")
"""What functions of torch's call the objects that they send. They travel as their sizes, then as bytes."""

_described: dict[tuple[Any, ...], str] = {}
"""By name, dtype, shape and reduction: a training makes the same calls again and again."""
MOST = 4096
"""Of them, before they are forgotten: a program may never send the same shape twice."""
_dtypes: dict[Any, str] = {}
_reductions: dict[Any, str] = {}


def is_of_a_group(arguments: Iterable[str]) -> bool:
    """Whether an operator with these arguments is between the ranks of a group."""
    return _GROUP in arguments


class Exchange:
    """What one operator was called with."""

    __slots__ = ("_given", "_named", "caller", "functional", "group", "kind", "op", "received", "sent", "waits")

    def __init__(
        self,
        kind: str,
        given: Mapping[str, Any],
        group: Any = None,
        function: FrameType | None = None,
        caller: str = "",
    ) -> None:
        self.kind, self._given, self.group, self.caller = kind, given, group, caller
        """``kind``: what it does, whichever function was called for it: ``all_reduce``, ``all_gather_into_tensor`` ….

        ``given``: the operator's arguments. ``caller``: the module that has called the function, or the operator;
        empty where no Python code has.
        """
        self.op = function.f_code.co_name if function is not None else kind
        """The function of torch.distributed that the program has called; the kind where it was none."""
        home = function.f_globals.get("__name__") if function is not None else None
        self.functional = home == _FUNCTIONAL
        self._named: Mapping[str, Any] = function.f_locals if function is not None else {}
        """What that function was given."""
        asynchronous = self._named.get("async_op") or self.op in ("isend", "irecv")
        self.waits = home == _FUNCTIONS and not asynchronous
        """Whether that function comes back when it is done."""
        self.received: list[torch.Tensor] = []
        """What something is put into."""
        self.sent: list[torch.Tensor] = []
        for name, value in given.items() if kind not in _WITHOUT_TENSORS else ():
            tensors = list(_tensors(value)) if name != _PLACES else []
            self.received += tensors if not name.startswith("input") and kind != "send" else []
            self.sent += tensors if not name.startswith("output") and kind != "recv" else []

    @classmethod
    def of(cls, operator: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exchange:
        """What an operator is called with, from here."""
        given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - what has its default is not given
        group = c10d.ProcessGroup.unbox(given[_GROUP])
        return cls(kind_of(operator), given, group, *_function(sys._getframe(1)))

    @property
    def peer(self) -> int | None:
        """The global rank of the source or destination."""
        root = next((self._given[name] for name in _ROOTS if name in self._given), None)
        return None if root is None else _global_rank(self.group, root)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All that it is over."""
        into = set(map(id, self.received))
        return self.received + [one for one in self.sent if id(one) not in into]

    @property
    def is_of_objects(self) -> bool:
        """Whether the program has sent objects by it, and not tensors."""
        return "object" in self.op

    @property
    def objects(self) -> Any:
        """The objects that travel now, where it is of objects; None where only their sizes do."""
        if not self.is_of_objects or any(one.dtype != torch.uint8 for one in self.tensors):
            return None
        return next((its for name in OBJECTS if (its := self._named.get(name)) is not None), None)

    @property
    def is_of_the_program(self) -> bool:
        """Whether Python code has called for it, and not torch's own below backward()."""
        return _is_the_programs(self.caller)

    @property
    def detail(self) -> str:
        """What has to be equal on all ranks that take part; the tag of a message."""
        if self.kind in ("send", "recv"):
            tag = self._given.get("tag")
            return f"tag {tag}" if tag else ""
        if self.is_of_objects:
            sizes = sum(one.numel() for one in self.sent if one.dtype == torch.int64)
            return f"{sizes} objects" if sizes and self.op == "broadcast_object_list" else ""
        if self.kind == "all_to_all":
            return ""
        compared = self.received if "scatter" in self.kind else self.sent
        uneven = self._is_uneven()
        if len(compared) != 1 or uneven:
            return " + ".join(_size(self.kind, one, uneven) for one in compared[:50]) + self._and_reduction()
        try:
            key = self.kind, compared[0].dtype, compared[0].shape, self._reduction()
            known = _described.get(key)
        except TypeError:  # a reduction with a factor of its own
            return _size(self.kind, compared[0], False) + self._and_reduction()
        if known is None:
            if len(_described) >= MOST:
                _described.clear()
            known = _described[key] = _size(self.kind, compared[0], False) + self._and_reduction()
        return known

    def _is_uneven(self) -> bool:
        """Whether it is meant that ranks have tensors of other sizes."""
        if self.kind == "all_to_all_single":  # a rank that sends equal parts need not say so where others do not
            return True
        others = {"all_gather": self.received, "reduce_scatter": self.sent}.get(self.kind, [])
        return len({one.numel() for one in others}) > 1

    def _reduction(self) -> Any:
        """As the program has named it to the function; an operator's argument has no way back to its name."""
        if "reduce" not in self.kind:
            return None
        return self._named.get("reduceOp" if self.functional else "op")

    def _and_reduction(self) -> str:
        how = self._reduction()
        if how is None:
            return UNNAMED if "reduce" in self.kind else ""
        try:
            known = _reductions.get(how)
            if known is None:
                known = _reductions[how] = str(how).rpartition(".")[2].lower()
        except TypeError:
            known = str(how)
        return f" {known}"


def is_the_programs() -> bool:
    """Whether the operator that is called from here is the program's, without looking at its arguments."""
    return _is_the_programs(_function(sys._getframe(1))[1])


def _is_the_programs(caller: str) -> bool:
    return bool(caller) and not caller.startswith(_AUTOGRAD)


def kind_of(operator: str) -> str:
    """What torch.distributed calls what an operator does."""
    name = _KINDS.get(operator)
    if name is None:
        name = operator.strip("_").removesuffix("_coalesced")  # over several tensors, or over one
        for short, long in _PARTS:
            name = name.replace(short, long)
        _KINDS[operator] = name
    return name


def _function(frame: FrameType | None) -> tuple[FrameType | None, str]:
    """The outermost of torch's functions that have led from the program's code to an operator; and who has called it.

    Where there is none, who has called the operator.
    """
    found, caller = None, ""
    for _ in range(NEAR):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__"))
        if module in (_FUNCTIONS, _FUNCTIONAL):
            if not frame.f_code.co_name.startswith("_") and frame.f_code.co_name != _BATCH:
                found, caller = frame, ""
        elif not module.startswith(("ddpcheck.", "torch._ops", "torch.distributed.c10d_logger")):
            caller = caller or module
            if found is not None or caller.startswith(_AUTOGRAD):
                break
        frame = frame.f_back
    return found, caller


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _global_rank(group: Any, rank: int) -> int:
    try:
        return rank if group is c10d._get_default_group() else c10d.get_global_rank(group, rank)
    except (KeyError, ValueError):  # a group that torch keeps no list of
        return rank


def ranks_of(ranks: Iterable[Any] | None) -> str:
    """The ranks of a group to be made."""
    return "all ranks" if ranks is None else "ranks " + ",".join(map(str, sorted(ranks)))


def _size(kind: str, tensor: torch.Tensor, uneven: bool) -> str:
    if uneven:
        return _dtype(tensor)
    if kind in _SHAPED and tensor.dim() > 1:  # dimensions of one element make no difference
        sizes = [size for size in tensor.shape if size != 1]
        if len(sizes) > 1:
            return f"{_dtype(tensor)}[{', '.join(map(str, sizes))}]"
    return f"{_dtype(tensor)} x {tensor.numel()}"


def _dtype(tensor: torch.Tensor) -> str:
    dtype = tensor.dtype
    known = _dtypes.get(dtype)
    if known is None:
        known = _dtypes[dtype] = str(dtype).removeprefix("torch.")
    return known
