"""Numbers that are read of a DTensor whose parts are still to be brought together: a norm, a largest element.

``item()`` brings nothing together: each rank gets what its own part gives. A
program may do the rest itself; then these numbers, or their squares, or sums
of them, go into a collective.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ddpcheck.evidence import Call, PartRead, PartsJoined
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.devices.device_numbers import together
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import looking_like, named, once_imported, shielded
from ddpcheck.probes.recording.unwatchable_moments import asleep

HOME = "torch.distributed.tensor"

MOST = 64
"""Lines that are followed, and numbers of one line between two steps; elements of a collective that is looked at."""

NEARLY = 1e-4

KINDS = ("all_reduce", "reduce", "all_gather", "gather")
"""Collectives that bring numbers together. FSDP has others."""

_numbers: dict[int, int] = {}
"""By line, how often one was read."""
_since: dict[int, list[float]] = {}
"""By line, those that were read since the last step of an optimizer."""
_joined: set[int] = set()
_writer: recorder.Recorder | None = None
"""In whose file these lines have their numbers."""


def watch() -> None:
    """See them from now on."""
    once_imported(HOME, _watch)
    gradient_events.COLLECTIVE.also(_goes)
    gradient_events.STEP.also(_entered)


def _watch() -> None:
    kind: Any = getattr(sys.modules.get(HOME), "DTensor", None)
    for name in ("item", "__float__") if kind is not None else ():
        if name not in vars(kind):  # else it would be a function of its own, that may bring the parts together
            setattr(kind, name, _around(kind, name))


def _around(kind: type, name: str) -> Any:
    original = getattr(kind, name)
    look = shielded(_read)

    def read(self: Any) -> Any:
        result = original(self)
        look(self, result)
        return result

    return named(looking_like(original)(read), kind, name)


def _read(tensor: Any, value: Any) -> None:
    writer = recorder.current()
    what = _what(tensor) if writer is not None else ""
    if writer is None or not what:
        return
    _begin_for(writer)
    site = user_lines.here()
    number = _numbers.get(site, 0)
    if site in _joined or (not number and len(_numbers) >= MOST):
        return
    _numbers[site] = number + 1
    of_line = _since.setdefault(site, [])
    if len(of_line) < MOST:
        of_line.append(float(value))
    if is_due(number):
        ranks = tuple(sorted(tensor.device_mesh.mesh.flatten().tolist()))
        writer.write(PartRead(**writer.next(), site=site, number=number, what=what, value=float(value), ranks=ranks))


def _begin_for(writer: recorder.Recorder) -> None:
    global _writer
    if _writer is not writer:
        _writer = writer
        for known in (_numbers, _since, _joined):
            known.clear()


def _what(tensor: Any) -> str:
    """What is to be made of its parts, over more ranks than one; empty where they are brought together already."""
    for place, one in enumerate(tensor.placements):
        if one.is_partial() and tensor.device_mesh.size(place) > 1:
            if hasattr(one, "norm_type"):
                return "norm"
            return one.reduce_op if one.reduce_op in ("sum", "max", "min") else ""
    return ""


def _entered(*_: Any) -> None:
    _since.clear()


def _goes(exchange: Exchange, _: Call) -> None:
    """A collective of the program's own: whether it brings together what was read."""
    writer = recorder.current()
    if writer is None or writer is not _writer or not _since:
        return
    if not exchange.is_of_objects and exchange.kind not in KINDS:
        return
    values = None if exchange.is_of_objects else together(_values(exchange))
    for site, of_line in list(_since.items()):
        if isinstance(values, Derived):
            record = partial(PartsJoined, **writer.next(), site=site)
            later_records.write(writer, partial(_told_later, record, list(of_line)), values=values)
        elif values is None or any(_is_of(of_line, value) for value in values):
            del _since[site]
            _joined.add(site)
            writer.write(PartsJoined(**writer.next(), site=site))


def _told_later(record: Callable[[], PartsJoined], of_line: list[float], values: list[Any]) -> PartsJoined | None:
    return record() if any(value is not None and _is_of(of_line, value) for value in values) else None


def _values(exchange: Exchange) -> list[Any]:
    """The few numbers that go into a collective; those on a device are still to be read."""
    found: list[Any] = []
    for value in exchange.sent:
        if not value.is_floating_point() or value.numel() > MOST:
            continue
        plain = readable_memory.in_a_row(value)
        if plain is not None and plain.is_cpu:
            found += plain.flatten().tolist()
        elif plain is not None and plain.is_cuda and not asleep():
            found += plain.flatten().double().unbind()
    return found


def _is_of(of_line: list[float], value: float) -> bool:
    squares = [one * one for one in of_line]
    every = [*of_line, *squares, math.fsum(of_line), math.fsum(squares), math.sqrt(math.fsum(squares))]
    return any(math.isclose(value, one, rel_tol=NEARLY) for one in every)
