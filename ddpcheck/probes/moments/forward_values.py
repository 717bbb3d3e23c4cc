"""The largest number of what each module of a forward was given and made, in windows that are looked at.

They say where a loss comes from that is not finite, and are let go where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Named(NamedTuple):
    """A module, by its path in the model and its class."""

    path: str
    kind: str
    given_infinite: bool = False
    """It was called with numbers that are infinite, as a mask may have."""


NOT_NAMED = Named("", "")


class _Call(NamedTuple):
    """A module was called: where the numbers of what it was given lie, and of what it made."""

    module: ref[torch.nn.Module]
    given: slice
    made: slice
    is_outermost: bool


class Forwards:
    """Those of models in training mode since the last backward()."""

    def __init__(self) -> None:
        self.roots: dict[int, ref[torch.nn.Module]] = {}
        self.numbers: list[Number] = []
        """The largest one of each tensor that was looked at."""
        self.calls: list[_Call] = []
        """In the order in which they returned."""
        self.is_whole = True
        """All that modules have returned could be read."""
        self.is_one = True
        """Each model was called once, as far as that could be seen: of two calls one may have no part in the loss."""
        self.streams: set[int] = set()

    @property
    def is_full(self) -> bool:
        """Whether nothing more is looked at."""
        return not self.is_one or len(self.calls) >= MOST

    def add(self, value: Any, outside: bool = False) -> slice:
        """Look at the tensors in it; ``outside``: at those alone that no gradient goes back through."""
        try:
            tensors = list(islice(tensors_in(value), EACH + 1))
            found = numbers_of(one for one in tensors[:EACH] if not (outside and one.requires_grad))
        except RecursionError:  # as deep as the program can go, there is no room for a look
            self.is_one = False
            return slice(0)
        self.is_whole &= len(tensors) <= EACH
        self.streams.update(map(stream_of, found))
        self.numbers += found
        return slice(len(self.numbers) - len(found), len(self.numbers))

    def origin(
        self, numbers: Sequence[float | None], is_nan: bool, usual: set[tuple[Named, str]] | None
    ) -> tuple[Origin, Named]:
        """Where the first one came up, by all of them, and the module that made it, or was called with it.

        What a model is given may be infinite by right, as masks are, and so may what a module makes that does so
        where the loss is finite, too.
        """
        if not self.calls or self.is_full or None in numbers:
            return "unseen", NOT_NAMED
        is_certain = True
        for name, what, number, given in self._unlike(numbers):
            if usual is not None and (name, _kind(what, number)) in usual:
                continue
            if usual is None and not math.isnan(number):
                # Of no loss that is finite anything is known yet: an infinite number then need not be why.
                is_certain = False
            elif what == "input":
                return "input", NOT_NAMED
            elif not any(map(math.isnan, given)):
                return "module", name._replace(given_infinite=not all(map(math.isfinite, given)))
            else:
                return ("code", name) if self.is_whole and is_certain else ("unseen", NOT_NAMED)
        return ("later" if self.is_whole and is_certain else "unseen"), NOT_NAMED

    def unlike(self, numbers: Sequence[float | None]) -> set[tuple[Named, str]]:
        """The modules that were given, or have made, numbers that are not finite."""
        if not self.is_one:
            return set()
        return {(name, _kind(what, number)) for name, what, number, _ in self._unlike(numbers)}

    def _unlike(self, numbers: Sequence[float | None]) -> Iterator[tuple[Named, str, float, Sequence[float]]]:
        """Call by call: the module, whether it is what that was given from outside or has made, and all given."""
        known = [0.0 if one is None else one for one in numbers]
        # What an outermost call was given came before all that is called within.
        outermost = iter([one for one in self.calls if one.is_outermost])
        root: _Call | None = None
        for call in self.calls:
            if root is None:
                root = next(outermost, None)
                for number in known[root.given] if root is not None else ():
                    if math.isnan(number) and root is not None:
                        yield self._name(root.module()), "input", number, ()
            root = None if call.is_outermost else root
            for number in known[call.made]:
                if not math.isfinite(number):
                    yield self._name(call.module()), "made", number, () if call.is_outermost else known[call.given]

    def _name(self, module: torch.nn.Module | None) -> Named:
        for root in filter(None, (one() for one in self.roots.values())):
            for path, one in root.named_modules():
                if one is module:
                    return Named(path, type(one).__name__)
        return Named("", type(module).__name__) if module is not None else NOT_NAMED


def _kind(what: str, number: float) -> str:
    return f"{what} {'NaN' if math.isnan(number) else 'infinite'}"


NOW: Forwards | None = None
"""Those that are looked at now."""
_cost = 0.0


def begin(root: torch.nn.Module) -> None:
    """A forward of this model begins, in a window that is looked at."""
    global NOW
    if root.training:
        NOW = NOW or Forwards()
        NOW.is_one &= id(root) not in NOW.roots
        NOW.roots[id(root)] = ref(root)


def reads(args: Any, kwargs: Any, is_outermost: bool = False) -> slice | None:
    """What a module is called with; None where that is not looked at."""
    if NOW is None or NOW.is_full:
        return None
    try:
        found: slice | None = safely(NOW.add, (args, kwargs), is_outermost)
    except RecursionError:
        NOW.is_one = False
        return None
    return found


def makes(module: torch.nn.Module, given: slice, result: Any, is_outermost: bool = False) -> None:
    """It has returned this."""
    if NOW is None or NOW.is_full:
        return
    try:
        safely(_made, NOW, module, given, result, is_outermost)
    except RecursionError:
        NOW.is_one = False


def _made(forwards: Forwards, module: torch.nn.Module, given: slice, result: Any, is_outermost: bool) -> None:
    made = forwards.add(result)
    forwards.is_whole &= made.start < made.stop or result is None
    forwards.calls.append(_Call(ref(module), given, made, is_outermost))


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


def numbers_of(tensors: Iterable[torch.Tensor]) -> list[Number]:
    """The largest number of each tensor, NaN where one is; without those that have none, or cannot be looked at."""
    global _cost
    if asleep() or is_tracing():
        return []
    began = clock.fine()
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            return [_number(own) for one in tensors if (own := _plain(one)) is not None]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return []
    finally:
        if NOW is not None:  # a loss outside of the recorded windows is no part of a look's cost
            _cost += clock.fine() - began


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    own = None if has_own_dispatch(tensor) else own_part(tensor)
    if own is None or own.layout is not torch.strided or own.is_nested or own.dtype not in _DTYPES:
        return None
    return own.detach() if not own.is_meta and own.numel() else None


def _number(own: torch.Tensor) -> Number:
    if own.device.type != "cpu":
        return torch.linalg.vector_norm(own, math.inf, dtype=torch.float32)  # type: ignore[no-any-return]
    if own.numel() == 1:
        return float(own)
    kind = torch.float64 if own.dtype == torch.float64 else torch.float32
    total = float(own.sum(dtype=kind))  # the faster one there
    return total if math.isfinite(total) else float(torch.linalg.vector_norm(own, math.inf, dtype=kind))
