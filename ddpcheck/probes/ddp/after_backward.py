"""The gradients of a wrapper as a backward() has left them, and whether a step is made on these very ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import torch

from ddpcheck.evidence import ABSENT, UNSEEN, Usage
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests
from ddpcheck.vocabulary.clock import clock

_WIDTH = len(UNSEEN)


class AfterBackward:
    """Digests of gradients, and on GPUs what tells that nothing has come between them and the step.

    There, to digest the same gradients twice would cost as much as all else.
    That they are the same objects in the same version says so, but for what is
    done to their ``.data``; so a part of each is compared as well.
    """

    def __init__(self, parameters: Collection[torch.Tensor]) -> None:
        began = clock.fine()
        gradients = [one.grad for one in parameters]
        self.digests = fast_digests.queued(gradients)
        self._marks: dict[int, tuple[int, int, int]] = {}
        """By the id of a parameter: its place, and which object in which version its gradient was."""
        self._part: bytes | fast_digests.Queued = b""
        if not isinstance(self.digests, bytes):
            self._part = fast_digests.queued(gradients, 0)
            for place, (one, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                if gradient is not None and not gradient.is_inference():
                    self._marks[id(one)] = place, id(gradient), gradient._version
        self.took = clock.fine() - began
        """Seconds of the host."""

    def place(self, parameter: torch.Tensor) -> int | None:
        """The place of a parameter whose gradient is, as far as torch counts, what it was; None for any other."""
        place, same, version = self._marks.get(id(parameter), (None, 0, 0))
        gradient = parameter.grad
        if place is None or gradient is None or id(gradient) != same or gradient._version != version:
            return None
        return place

    @property
    def parts(self) -> tuple[object, object]:
        """Digests of all elements, and of a part of each gradient."""
        return self.digests, self._part


def unchanged(
    parameters: Sequence[torch.Tensor], afters: Sequence[AfterBackward | None], but: Collection[int]
) -> Derived | None:
    """Digests of these parameters' gradients on entry to a step, if they are those that backward() has left.

    None where anything may have come between. A gradient that is another after all is one that nobody has looked at.
    """
    places: list[tuple[int, int] | None] = []
    for number, parameter in enumerate(parameters):
        if parameter.grad is None or number in but:
            places.append(None)
            continue
        known = ((which, after.place(parameter)) for which, after in enumerate(afters) if after is not None)
        found = next(((which, place) for which, place in known if place is not None), None)
        if found is None:
            return None
        places.append(found)
    if not any(places):
        return None
    fixed = [ABSENT if one.grad is None else UNSEEN for one in parameters]
    now = fast_digests.queued([one.grad for one in parameters], 0, but)
    before = [part for after in afters if after is not None for part in after.parts]
    numbers = [which for which, after in enumerate(afters) if after is not None]

    def put_together(now: bytes, *before: bytes) -> bytes:
        told = dict(zip(numbers, zip(before[::2], before[1::2], strict=True), strict=True))
        found = []
        for number, known in enumerate(places):
            if known is None:
                found.append(fixed[number])
                continue
            which, place = known
            whole, part = (each[place * _WIDTH : (place + 1) * _WIDTH] for each in told[which])
            same = part == now[number * _WIDTH : (number + 1) * _WIDTH]
            found.append(whole if same else UNSEEN)
        return b"".join(found)

    return Derived(put_together, now, *before)


def with_gradients(usage: Usage, after: AfterBackward | None) -> Usage | Derived:
    """What became of a wrapper, with the digests of the gradients that its last backward() has left."""
    if after is None:
        return usage
    return Derived(lambda digests: msgspec.structs.replace(usage, after=digests), after.digests)
