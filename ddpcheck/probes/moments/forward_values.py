"""The largest number of what each module of a forward made, in windows that are looked at.

They say where a loss comes from that is not finite, and are let go where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
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


class Forwards:
    """Those of models in training mode since the last backward()."""

    def __init__(self) -> None:
        self.roots: list[ref[torch.nn.Module]] = []
        self.given: list[Number] = []
        """The largest number of each tensor that the models were called with."""
        self.makers: list[ref[torch.nn.Module]] = []
        self.made: list[Number] = []
        """By module, in the order in which they returned."""
        self.is_whole = True
        """Of every module that has returned something, something could be read."""
        self.streams: set[int] = set()

    def numbers(self) -> list[Number]:
        """All of them, side by side."""
        return self.given + self.made

    def origin(self, numbers: Sequence[float | None], is_nan: bool, usual: set[str] | None) -> tuple[Origin, str]:
        """Where the first one came up, by all of them, and the module that made it.

        What a model is given may be infinite by right, as masks are, and so may what a module makes that does so
        where the loss is finite, too.
        """
        if len(self.made) >= MOST or not self.made or None in numbers:
            return "unseen", ""
        if any(map(math.isnan, self._known(numbers)[0])):
            return "input", ""
        for module, number in self._unlike(numbers):
            # Of none that is finite anything is known yet: an infinite number then need not be why.
            if module not in usual if usual is not None else not is_nan or math.isnan(number):
                return "module", module
        return ("later" if self.is_whole else "unseen"), ""

    def usual(self, numbers: Sequence[float | None]) -> set[str]:
        """The modules that have made numbers that are not finite."""
        return {module for module, _ in self._unlike(numbers)}

    def _unlike(self, numbers: Sequence[float | None]) -> Iterator[tuple[str, float]]:
        for maker, number in zip(self.makers, self._known(numbers)[1], strict=False):
            if not math.isfinite(number):
                yield self._name(maker()), number

    def _known(self, numbers: Sequence[float | None]) -> tuple[list[float], list[float]]:
        known = [0.0 if one is None else one for one in numbers]
        return known[: len(self.given)], known[len(self.given) :]

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


def makes(module: torch.nn.Module, result: Any) -> None:
    """A module has returned this."""
    if NOW is not None and len(NOW.made) < MOST and torch.is_grad_enabled():
        safely(_made, NOW, module, result)


def _read(forwards: Forwards, given: Any) -> None:
    forwards.given += _largest(forwards, given)


def _made(forwards: Forwards, module: torch.nn.Module, result: Any) -> None:
    numbers = _largest(forwards, result)
    forwards.made += numbers
    forwards.makers += [ref(module)] * len(numbers)
    forwards.is_whole &= bool(numbers) or result is None


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


def _largest(forwards: Forwards, value: Any) -> list[Number]:
    """Of each tensor in it, NaN where one is; without those that have no numbers, or cannot be looked at."""
    global _cost
    if asleep() or is_tracing():
        return []
    began = clock.fine()
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            each = [own for one in islice(tensors_in(value), EACH) if (own := _plain(one)) is not None]
            numbers = [_number(own) for own in each]
            forwards.streams.update(map(stream_of, numbers))
            return numbers
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
