"""The largest number of what each module of a forward made, in windows that are looked at.

They say where a loss comes from that is not finite, and are let go where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple
from weakref import ref

import torch

from ddpcheck.evidence import Origin
from ddpcheck.probes.devices.device_events import stream_of
from ddpcheck.probes.digests.readable_memory import has_own_dispatch, own_part
from ddpcheck.probes.moments.module_values import tensors_in
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import safely
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, is_tracing
from ddpcheck.vocabulary.clock import clock

MOST = 4096
"""Calls of modules that are looked at before one backward()."""
EACH = 16
"""Tensors that one of them is given, or returns."""

Number = float | torch.Tensor


class _Call(NamedTuple):
    """A module has returned: where the numbers of what it was called with lie, and of what it made."""

    module: ref[torch.nn.Module]
    given: slice
    made: slice


class Forwards:
    """Those of models in training mode since the last backward()."""

    def __init__(self) -> None:
        self.roots: list[ref[torch.nn.Module]] = []
        self.numbers: list[Number] = []
        """The largest one of each tensor that was looked at."""
        self.inputs: list[slice] = []
        """Where those lie of tensors that came from outside, and not from a computation that is followed."""
        self.calls: list[_Call] = []
        """In the order in which they returned."""
        self.is_whole = True
        """Of every module that has returned something, something could be read."""
        self.streams: set[int] = set()

    def add(self, value: Any, outside: bool = False) -> slice:
        """Look at the tensors in it; ``outside``: at those alone that no gradient goes back through."""
        found = _largest(value, outside)
        self.streams.update(map(stream_of, found))
        self.numbers += found
        return slice(len(self.numbers) - len(found), len(self.numbers))

    def origin(self, numbers: Sequence[float | None], is_nan: bool, usual: set[str] | None) -> tuple[Origin, str]:
        """Where the first one came up, by all of them, and the module that made it, or was called with it.

        What a module is given may be infinite by right, as masks are, and so may what a module makes that does so
        where the loss is finite, too.
        """
        if not self.calls or len(self.calls) >= MOST or None in numbers:
            return "unseen", ""
        known = [0.0 if one is None else one for one in numbers]
        if any(math.isnan(one) for its in self.inputs for one in known[its]):
            return "input", ""
        for call, number in self._unlike(known):
            name, given = self._name(call.module()), known[call.given]
            # Of none that is finite anything is known yet: an infinite number then need not be why.
            if name in usual if usual is not None else is_nan and not math.isnan(number):
                continue
            if any(map(math.isnan, given)):
                return "code", name
            return "module", name if all(map(math.isfinite, given)) else f"{name}, called with infinite numbers,"
        return ("later" if self.is_whole else "unseen"), ""

    def usual(self, numbers: Sequence[float | None]) -> set[str]:
        """The modules that have made numbers that are not finite."""
        return {self._name(call.module()) for call, _ in self._unlike([0.0 if one is None else one for one in numbers])}

    def _unlike(self, known: Sequence[float]) -> Iterator[tuple[_Call, float]]:
        for call in self.calls:
            for number in known[call.made]:
                if not math.isfinite(number):
                    yield call, number

    def _name(self, module: torch.nn.Module | None) -> str:
        for root in filter(None, (one() for one in self.roots)):
            for path, one in root.named_modules():
                if one is module:
                    kind = type(one).__name__
                    return f"{path} ({kind})" if path else kind
        return type(module).__name__ if module is not None else "a module that is gone by now"


NOW: Forwards | None = None
"""Those that are looked at now."""
_cost = 0.0


def begin(root: torch.nn.Module) -> None:
    """A forward of this model begins, in a window that is looked at."""
    global NOW
    if root.training:
        NOW = NOW or Forwards()
        NOW.roots.append(ref(root))


def reads(args: Any, kwargs: Any) -> None:
    """What it is called with."""
    if NOW is not None:
        safely(_read, NOW, (args, kwargs))


def makes(module: torch.nn.Module, given: Any, result: Any) -> None:
    """A module that was called with this has returned that."""
    if NOW is not None and len(NOW.calls) < MOST and torch.is_grad_enabled():
        safely(_made, NOW, module, given, result)


def _read(forwards: Forwards, given: Any) -> None:
    forwards.inputs.append(forwards.add(given, outside=True))


def _made(forwards: Forwards, module: torch.nn.Module, given: Any, result: Any) -> None:
    made = forwards.add(result)
    numbers = forwards.numbers[made]
    forwards.is_whole &= bool(numbers) or result is None
    is_fine = all(isinstance(one, float) and math.isfinite(one) for one in numbers)
    forwards.calls.append(_Call(ref(module), slice(0) if is_fine else forwards.add(given), made))


def taken() -> Forwards | None:
    """A backward() begins: those before it."""
    global NOW
    forwards, NOW = NOW, None
    return forwards


def spent() -> float:
    """Seconds that the looks since the last time have taken."""
    global _cost
    seconds, _cost = _cost, 0.0
    return seconds


def _largest(value: Any, outside: bool) -> list[Number]:
    """Of each tensor in it, NaN where one is; without those that have no numbers, or cannot be looked at."""
    global _cost
    if asleep() or is_tracing():
        return []
    began = clock.fine()
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            tensors = (one for one in tensors_in(value) if not (outside and one.requires_grad))
            return [_number(own) for one in islice(tensors, EACH) if (own := _plain(one)) is not None]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return []
    finally:
        _cost += clock.fine() - began


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    own = None if has_own_dispatch(tensor) else own_part(tensor)
    is_read = own is not None and own.is_floating_point() and not own.is_meta and own.numel()
    return own.detach() if own is not None and is_read else None


def _number(own: torch.Tensor) -> Number:
    if own.device.type != "cpu":
        return torch.linalg.vector_norm(own, math.inf, dtype=torch.float32)  # type: ignore[no-any-return]
    kind = torch.float64 if own.dtype == torch.float64 else torch.float32
    total = float(own.sum(dtype=kind))  # the faster one there
    return total if math.isfinite(total) else float(torch.linalg.vector_norm(own, math.inf, dtype=kind))
