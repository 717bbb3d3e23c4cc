"""One pass through a DataLoader while it goes on: the batches that are handed out, and what is made of them."""

from __future__ import annotations

import array
import os
import threading
import weakref
from collections import deque
from itertools import islice
from typing import Any

import xxhash

from ddpcheck.evidence import NO_SITE, Batch, PassEnded
from ddpcheck.probes.data import fetched_samples
from ddpcheck.probes.digests.batch_fingerprints import length
from ddpcheck.probes.randomness import after_batches
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.probes.recording.shapes import MOST, shapes, tensors


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


class _InThread(threading.local):
    """By thread."""

    passing: Passing | None = None


IN_THREAD = _InThread()
"""The pass that is about to hand a batch out in this thread."""


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
        self._contents: fetched_samples.Contents | None = None

    @property
    def is_a_look(self) -> bool:
        """One batch was taken of it, or none, and there were more."""
        return self.batches < 2 and not self.exhausted

    def ask(self, index: Any) -> None:
        """The sampler has given the indices of a batch, which may be handed out later."""
        if self._asked is not None:
            self._asked.append(fetched_samples.indices_of(index))

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
        if indices is not None:
            self.given = len(indices)
        else:
            self.given = self._contents.samples if self._contents is not None else _samples(batch)
        self.samples += self.given
        if indices is not None:
            self._order.update(indices.tobytes())
        else:
            self._ordered = False
        if self.told:
            self.shapes, self.handed = _shapes(batch)
        writer = recorder.current()
        if writer is not None and not self.over:
            self._tell(writer, number, indices)
            if self.told and number < after_batches.BATCHES:
                after_batches.handed(self.loader)

    def lose(self) -> None:
        """No batch is given to the script: it could not be made."""
        self._contents = None
        if self._asked:
            self._asked.popleft()

    def take(self, data: Any, is_batch: bool) -> None:
        """This process has been given the samples of the next batch by the dataset."""
        writer = recorder.current()
        if writer is not None and self.told and not self.over:
            indices = self._asked[0] if self._asked else None
            self._contents = fetched_samples.contents_of(data, is_batch, indices, self.batches, writer.stride(Batch))

    def _tell(self, writer: recorder.Recorder, number: int, indices: array.array[int] | None) -> None:
        contents, self._contents = self._contents, None
        stride = writer.stride(Batch)
        places = fetched_samples.places_on_record(indices, stride)
        if stride > 1 and number % stride and not (places and self.told):
            return
        if places is not None and indices is not None:
            indices = array.array("q", [indices[place] for place in places])
        writer.write(
            Batch(
                **writer.next(),
                loader=self.loader,
                pass_=self.number,
                number=number,
                indices=indices.tobytes() if indices is not None and self.told else b"",
                prints=contents.prints if contents is not None else b"",
                labels=contents.labels if contents is not None else b"",
                backwards=self.backwards,
                samples=self.given,
            )
        )

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
