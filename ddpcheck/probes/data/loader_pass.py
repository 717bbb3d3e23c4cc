"""One pass through a DataLoader while it goes on: the batches that are handed out, and what is made of them."""

from __future__ import annotations

import array
import os
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import xxhash

from ddpcheck.evidence import ABSENT, NO_SITE, Batch, PassEnded
from ddpcheck.probes.digests.batch_fingerprints import fingerprints, length
from ddpcheck.probes.randomness import after_batches
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.probes.recording.shapes import MOST, shapes, tensors
from ddpcheck.vocabulary.clock import clock

ENOUGH = 64
"""Fingerprints for one batch; of a larger one, every second, fourth … index is looked at."""
GRACE = 0.05
"""Seconds that fingerprints may cost in any case, and once more each time that their number has been halved."""
SHARE = 0.005
"""The part of the time that they may cost beyond that."""


def is_told(number: int, first: int) -> bool:
    """Whether something that comes again and again is looked at this time: the first ones, and powers of two."""
    return (number < first or number & (number - 1) == 0) and not is_lone()


def is_kept(number: int) -> bool:
    """Whether a pass with this number is written down: a program may begin one for every step of it."""
    return number < 1024 or number % (1 << (number.bit_length() - 10)) == 0


class Tally:
    """What is counted over all passes of this process."""

    backwards = 0
    """backward() calls."""
    latest: Passing | None = None
    """The pass that has handed out a batch last."""
    handing: Passing | None = None
    """The pass that is about to hand one out."""


class _Budget:
    """How much fingerprints have cost, and by how much they are thinned for it."""

    def __init__(self) -> None:
        self.level = 0
        self.spent = 0.0
        self.began: float | None = None

    def charge(self, began: float, ended: float) -> None:
        if self.began is None:
            self.began = began
        self.spent += ended - began
        while self.spent > GRACE * (self.level + 1) + SHARE * (ended - self.began) and self.level < 20:
            self.level += 1


_budget = _Budget()


class Passing:
    """A pass that has begun: of a loader with this number, the how-manieth of it.

    ``by_index`` where its sampler's indices are known in the order in which
    the batches come; ``told`` where contents are looked at.
    """

    def __init__(self, loader: int, number: int, by_index: bool, told: bool, site: int = NO_SITE) -> None:
        self.loader, self.number, self.told, self.site = loader, number, told, site
        self.batches = self.samples = self.backwards = 0
        self.over = self.exhausted = False
        self.shapes: list[list[int]] = []
        """Of the last batch, where contents are looked at."""
        self.handed: list[weakref.ref[Any]] = []
        """Its tensors."""
        self.given = 0
        """The samples of the last batch."""
        self._pid = os.getpid()
        self._asked: deque[array.array[int] | None] | None = deque() if by_index else None
        self._order = xxhash.xxh3_64()
        self._ordered = by_index
        self._mark = 0

    @property
    def is_a_look(self) -> bool:
        """One batch was taken of it, or none, and there were more."""
        return self.batches < 2 and not self.exhausted

    def ask(self, index: Any) -> None:
        """The sampler has given the indices of a batch, which may be handed out later."""
        if self._asked is not None:
            self._asked.append(_indices(index))

    def count(self) -> None:
        """Take in the backward() calls since the last batch was handed out: the next one is asked for."""
        if self.batches:
            self.backwards += Tally.backwards - self._mark
            self._mark = Tally.backwards

    def hand(self, batch: Any) -> None:
        """A batch is given to the script."""
        indices = self._asked.popleft() if self._asked else None
        self._mark = Tally.backwards
        Tally.latest = self
        number = self.batches
        self.batches += 1
        self.given = len(indices) if indices is not None else _samples(batch)
        self.samples += self.given
        if indices is not None:
            self._order.update(indices.tobytes())
        else:
            self._ordered = False
        if self.told:
            self.shapes, self.handed = _shapes(batch)
        writer = recorder.current()
        if writer is not None and not self.over:
            self._tell(writer, number, batch, indices)
            if self.told and number < after_batches.BATCHES:
                after_batches.handed(self.loader)

    def _tell(self, writer: recorder.Recorder, number: int, batch: Any, indices: array.array[int] | None) -> None:
        stride = writer.stride(Batch)
        places = None
        if indices is not None and stride > 1:
            # The same samples on every rank, whatever batch they are in.
            places = [place for place, index in enumerate(indices) if index % stride == 0]
        if stride > 1 and number % stride and not (places and self.told):
            return
        samples, prints, labels = self._prints(number, batch, indices, places, stride)
        if places is not None and indices is not None:
            indices = array.array("q", [indices[place] for place in places])
        writer.write(
            Batch(
                **writer.next(),
                loader=self.loader,
                pass_=self.number,
                number=number,
                indices=indices.tobytes() if indices is not None and self.told else b"",
                prints=prints,
                labels=labels,
                backwards=self.backwards,
                samples=samples,
            )
        )

    def _prints(
        self, number: int, batch: Any, indices: Sequence[int] | None, places: list[int] | None, stride: int
    ) -> tuple[int, bytes, bytes]:
        """The number of samples, and the fingerprints of those at these places."""
        samples = len(indices) if indices is not None else _samples(batch)
        thinned = max(stride, 1 << _budget.level)
        if indices is not None:
            thinned = max(thinned, 1 << ((samples - 1) // ENOUGH).bit_length() if samples else 1)
        if not self.told or (indices is None and number % thinned):
            return samples, b"", b""
        looked = places if places is not None else range(samples) if indices is not None else None
        hashed = looked
        if indices is not None and looked is not None and thinned > stride:
            hashed = [place for place in looked if indices[place] % thinned == 0]
        if hashed is not None and not len(hashed):
            return samples, b"", b""
        began = clock.fine()
        try:
            rows = fingerprints(batch, samples or None, hashed)
        except Exception as error:  # a batch of a kind of its own, whose parts cannot be read like this
            signal_exceptions.let_through(error)
            rows = None
        _budget.charge(began, clock.fine())
        if rows is None:
            return samples, b"", b""
        if hashed is looked or looked is None or hashed is None:
            return rows.samples, rows.prints, rows.labels
        return rows.samples, _spread(rows.prints, hashed, looked), _spread(rows.labels, hashed, looked)

    def end(self, exhausted: bool) -> None:
        """It is over: its loader had no more, or the script has let go of it."""
        if self.over or os.getpid() != self._pid:
            return
        self.over, self.exhausted = True, exhausted
        if not exhausted and Tally.latest is self:
            self.count()
        self._asked = None
        writer = recorder.current()
        if writer is None or not is_kept(self.number):
            return
        writer.write(
            PassEnded(
                **writer.next(),
                loader=self.loader,
                number=self.number,
                batches=self.batches,
                samples=self.samples,
                exhausted=exhausted,
                order=self._order.hexdigest() if self._ordered and self.batches else "",
                backwards=self.backwards,
            )
        )


def _samples(batch: Any) -> int:
    """How many samples a batch has; 0 where that cannot be seen."""
    try:
        return length(batch) or 0
    except Exception as error:  # a batch of a kind of its own
        signal_exceptions.let_through(error)
        return 0


def _shapes(batch: Any) -> tuple[list[list[int]], list[weakref.ref[Any]]]:
    """The shapes of the tensors in a batch, and these themselves, as long as the program has them."""
    try:
        return shapes(batch), [weakref.ref(one) for one in islice(tensors(batch), MOST)]
    except Exception as error:  # a batch of a kind of its own
        signal_exceptions.let_through(error)
        return [], []


def _indices(index: Any) -> array.array[int] | None:
    """The indices of a batch as they are now: a sampler may use its list again. None for what is no index."""
    try:
        if hasattr(index, "__index__"):
            return array.array("q", [index])
        if isinstance(index, (list, tuple)) or hasattr(index, "tolist"):
            return array.array("q", index if isinstance(index, (list, tuple)) else index.tolist())
    except (TypeError, ValueError, OverflowError) as error:
        signal_exceptions.let_through(error)
    return None


def _spread(prints: bytes, hashed: Sequence[int], looked: Sequence[int]) -> bytes:
    """The fingerprints at their places among those that are told of."""
    if not prints:
        return b""
    known = {place: prints[8 * n : 8 * n + 8] for n, place in enumerate(hashed)}
    return b"".join(known.get(place, ABSENT) for place in looked)
