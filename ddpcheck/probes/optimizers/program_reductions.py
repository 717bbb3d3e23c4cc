"""Which parameters and gradients the program's own collectives go over, around each optimizer step.

What the program itself reduces at every step is a ground for what the ranks
must agree on. A tensor is known by its storage, and never by its values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ddpcheck.evidence import PAIRWISE, Call, Carried, Exchanged, Transfers
from ddpcheck.probes.collectives import call_log
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

FEW = 4
"""Elements of a tensor that is taken for a loss or a count, and not for a part of a model."""
CHANGES = 8
"""How often it is written down that an optimizer's exchanges are others than at the step before."""
REMEMBERED = 1 << 14

_ALIKE = ("all_reduce", "broadcast", "all_gather")
"""How those begin after which all ranks hold the same in what was received."""


class Operand:
    """A tensor that a collective went over."""

    __slots__ = ("alike", "backwards", "floating", "group", "known", "number", "numel", "site", "start",
                 "storage", "to_one", "within")  # fmt: skip

    def __init__(self, tensor: torch.Tensor, storage: torch.UntypedStorage, call: Call, alike: bool) -> None:
        # A weak reference: the address of a storage is given to no other one as long as it is held.
        self.storage = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.start, self.numel = int(tensor.storage_offset()), tensor.numel()
        self.floating = tensor.dtype not in (torch.int64, torch.bool)
        self.group, self.number, self.site = call.group, call.number, call.site
        self.alike = alike
        self.to_one = call.op == "reduce"
        # Hooks that send what is ready do so within the backward() whose gradients these are.
        self.within = gradient_events.is_within_backward()
        self.backwards = BACKWARDS.ended + self.within
        self.known = False
        """It was a parameter or a gradient of some optimizer."""


class Backwards:
    """The backward() calls of this process that have ended."""

    ended = 0


BACKWARDS = Backwards()

_log: deque[Operand] = deque()
_dropped = 0
"""How many operands are remembered no more: those in the log are counted on from there."""
_of_models = _others = 0


def note(exchange: Exchange, call: Call) -> None:
    """Remember what a collective of the program's own goes over."""
    if call.joined:
        return
    if exchange.is_of_objects:
        if _has_tensors(exchange.objects):
            note_unseen()
        return
    received = set(map(id, exchange.received)) if exchange.kind.startswith(_ALIKE) else ()
    for tensor in exchange.tensors:
        storage = readable_memory.storage(tensor)
        if storage is None:
            note_unseen()
            continue
        operand = Operand(tensor, storage, call, id(tensor) in received)
        operand.floating |= call.op in PAIRWISE
        _log.append(operand)
    while len(_log) > REMEMBERED:
        _drop()


def note_unseen() -> None:
    """Count a transfer of which nothing else is known."""
    global _others
    _others += 1


def _has_tensors(value: Any, depth: int = 4) -> bool:
    if isinstance(value, (bool, int, float, str, type(None), torch.device, torch.dtype)):
        return False
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return any(_has_tensors(one, depth - 1) for one in islice(value, 1000))
    if depth and isinstance(value, dict):
        return any(_has_tensors(one, depth - 1) for one in islice(value.values(), 1000))
    return not isinstance(value, torch.distributed.ProcessGroup)


def _drop() -> None:
    global _dropped, _of_models, _others
    operand = _log.popleft()
    _dropped += 1
    _of_models += operand.known
    _others += not operand.known and operand.floating and operand.numel > FEW


def tell() -> None:
    """Write down, at the end, what went over models and what else there was."""
    writer = recorder.always()
    if writer is None:
        return
    while _log:
        _drop()
    writer.write(Transfers(**writer.next(), of_models=_of_models, others=_others))


# --- one optimizer


Of = Literal["gradient", "parameter"]
_Tensor = tuple[int, Of, torch.Tensor]
"""Of an optimizer's parameter: its place, and whether it is its gradient."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Window:
    """What was exchanged since an optimizer's step before: seen on entry to a step, and again on its exit."""

    def __init__(self) -> None:
        self._start = self._entry = _dropped  # what was forgotten before its first step was not its own
        self._before: list[Carried] = []
        self._parts: list[Carried] = []
        self._looks_at_parts = False
        self._steps = 0
        self._lost = False
        self._told: tuple[list[Carried], list[Carried]] = ([], [])
        self._changes = 0

    @property
    def start(self) -> int:
        """What came before is of no interest any more."""
        return self._start

    def begin_again(self) -> None:
        """The optimizer has other parameters now."""
        self._told, self._changes = ([], []), 0

    def entered(self, parameters: Sequence[torch.Tensor]) -> None:
        """A step begins."""
        self._before = self._carried(_of_plain(parameters), parameters, self._start, inside=False)
        # With every step it would be a look at all DTensors, which FSDP's collectives are not over.
        self._looks_at_parts = is_due(self._steps)
        self._steps += 1
        if self._looks_at_parts:
            self._parts = self._carried(_of_parts(parameters), (), self._start, inside=False)
        self._entry = _dropped + len(_log)

    def exchanges(self) -> tuple[list[int], list[str]]:
        """The lines and groups of what went over the wire since the step before, and was of some size."""
        operands = islice(_log, max(0, self._start - _dropped), None)
        large = [one for one in operands if one.floating and one.numel > FEW]
        return list(dict.fromkeys(one.site for one in large)), sorted({one.group for one in large})

    def left(self, writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor]) -> None:
        """A step is over: what has changed since the one before is written down."""
        # What has the size of gradients that went over the wire before is made of them: such as the updates of owners.
        known = {one.place for one in self._before if one.of == "gradient" and not one.flat}
        within = self._carried(_of_plain(parameters), parameters, self._entry, inside=True)
        carried = self._before + [one for one in within if not (one.flat and one.place in known)]
        parts = self._told[1]
        if self._looks_at_parts:
            parts = self._parts + self._carried(_of_parts(parameters), (), self._entry, inside=True)
        self._start = _dropped + len(_log)
        if (carried, parts) == self._told and not self._lost:
            return
        self._told = carried, parts
        self._changes += 1
        lost, self._lost = self._lost or self._changes == CHANGES, False
        if self._changes <= CHANGES:
            writer.write(
                Exchanged(**writer.next(), optimizer=optimizer, number=number, carried=carried, lost=lost, parts=parts)
            )

    def _carried(
        self, tensors: Iterable[_Tensor], parameters: Sequence[torch.Tensor], start: int, inside: bool
    ) -> list[Carried]:
        if start < _dropped:
            self._lost = True
        operands = list(islice(_log, max(0, start - _dropped), None))
        if not operands:
            return []
        found = [*_by_storage(tensors, operands), *_by_size(parameters, operands, inside)]
        first = self._numbers_before(operands)
        last = {group: _calls_on(group) for group in {one.group for one in found}}
        # Counted from what is nearest, so that a call of an epoch's end does not make another step of it.
        return [
            Carried(
                place=one.place,
                of=one.of,
                inside=inside,
                group=one.group,
                number=one.number - (first[one.group] if one.of == "parameter" and not inside else last[one.group]),
                offset=one.offset,
                alike=one.alike,
                flat=one.flat,
                to_one=one.to_one,
            )
            for one in found
        ]

    @staticmethod
    def _numbers_before(operands: Sequence[Operand]) -> dict[str, int]:
        first: dict[str, int] = {}
        for operand in operands:
            first.setdefault(operand.group, operand.number)
        return first


def forget(windows: Callable[[], Iterable[Window]]) -> None:
    """Drop what no optimizer will ask for any more; ``windows``: those of all optimizers."""
    if not _log:
        return
    start = min((window.start for window in windows()), default=0)
    while _log and _dropped < start:
        _drop()


class _Found(NamedTuple):
    place: int
    of: Of
    group: str
    number: int
    offset: int
    alike: bool
    flat: bool = False
    to_one: bool = False


def _calls_on(group: str) -> int:
    book = call_log.known()
    return book.last(group) if book is not None else 0


def _each(parameters: Sequence[torch.Tensor], wanted: Callable[[torch.Tensor], bool]) -> Iterator[_Tensor]:
    for place, parameter in enumerate(parameters):
        if wanted(parameter):
            yield place, "parameter", parameter
            if parameter.grad is not None:
                yield place, "gradient", parameter.grad


def _of_plain(parameters: Sequence[torch.Tensor]) -> Iterator[_Tensor]:
    """What may have a storage: a DTensor has none, and neither has its gradient."""
    return _each(parameters, readable_memory.may_have_storage)


def _of_parts(parameters: Sequence[torch.Tensor]) -> Iterator[_Tensor]:
    """What this rank has of DTensors and of their gradients."""
    for place, of, tensor in _each(parameters, readable_memory.is_dtensor):
        own = readable_memory.part(tensor) if readable_memory.is_dtensor(tensor) else None
        if own is not None:
            yield place, of, own


def _by_storage(tensors: Iterable[_Tensor], operands: Sequence[Operand]) -> Iterator[_Found]:
    """The parameters and gradients that share memory with what a collective went over: the last one counts."""
    by_storage: dict[int, list[Operand]] = {}
    for operand in operands:
        by_storage.setdefault(operand.storage.cdata, []).append(operand)
    largest = max(operand.numel for operand in operands)
    for place, of, tensor in tensors:
        # Most programs exchange a loss alone, which holds no parameter: a look at each one's storage takes far longer.
        if type(tensor) in _PLAIN and tensor.numel() > largest:
            continue
        storage = readable_memory.storage(tensor)
        if storage is None:
            continue
        last = None
        start = int(tensor.storage_offset())
        for operand in by_storage.get(StorageWeakRef(storage).cdata, ()):  # type: ignore[no-untyped-call]
            if operand.start <= start and start + tensor.numel() <= operand.start + operand.numel:
                operand.known = True
                last = operand
        if last is not None:
            offset = start - last.start
            yield _Found(place, of, last.group, last.number, offset, last.alike, to_one=last.to_one)


def _by_size(parameters: Sequence[torch.Tensor], operands: Sequence[Operand], inside: bool) -> Iterator[_Found]:
    """Tensors into which all parameters, or all gradients, fit side by side to the element."""
    flat = [one for one in operands if one.alike and not one.known and one.floating and one.numel > FEW]
    if not flat:
        return
    late = [one for one in flat if inside or one.backwards >= BACKWARDS.ended]
    early = [one for one in flat if not inside and one.backwards < BACKWARDS.ended]
    gradients = [(place, p.grad.numel()) for place, p in enumerate(parameters) if p.grad is not None]
    yield from _laid_out(gradients, late, "gradient")
    yield from _laid_out([(place, p.numel()) for place, p in enumerate(parameters)], early, "parameter")


def _laid_out(sizes: list[tuple[int, int]], flat: Sequence[Operand], of: Of) -> Iterator[_Found]:
    """These tensors in their order, or from the last to the first, cut at the ends of what went over the wire."""
    for order in (sizes, sizes[::-1]):
        found: list[_Found] = []
        used: list[Operand] = []
        rest = list(order)
        for operand in flat:
            taken, length = 0, 0
            while taken < len(rest) and length < operand.numel:
                length += rest[taken][1]
                taken += 1
            if length != operand.numel:
                continue
            offset = 0
            for place, numel in rest[:taken]:
                found.append(_Found(place, of, operand.group, operand.number, offset, True, True))
                offset += numel
            rest = rest[taken:]
            used.append(operand)
        if found and (not rest or (of == "gradient" and _are_buckets(used, flat, sizes, order is not sizes))):
            for operand in used:
                operand.known = True
            yield from found
            return


def _are_buckets(
    used: Sequence[Operand], flat: Sequence[Operand], sizes: Iterable[tuple[int, int]], backwards: bool
) -> bool:
    """Whether what some gradients fit into are buckets of these, though others are in none.

    What has the size of one gradient alone may be anything, and so may calls
    of one size of which some are left over: an activation of each layer. Within
    a backward() gradients are there from the last one on.
    """
    numbers = {operand.numel for operand in used}
    return (
        numbers.isdisjoint(numel for _, numel in sizes)
        and not any(one.numel in numbers for one in flat if one not in used)
        and (backwards or not any(operand.within for operand in used))
    )
