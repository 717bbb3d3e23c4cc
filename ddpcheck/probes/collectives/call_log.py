"""The calls of this process: numbered group by group, and written down without end in a bounded room."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque

from ddpcheck.evidence import PAIRWISE, RECEIVES, Call
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.processes import main_thread
from ddpcheck.probes.recording import recorder
from ddpcheck.vocabulary.clock import clock

FILLING, NEARLY_FULL = 0.6, 0.9
"""The parts of the room from which on lines that call very often are not written, and no call is."""
OFTEN = 1000
"""Calls of one line: those of an epoch's end, which order the ranks' files, stay below it for long."""
TAIL = 512
TAGS = 4096
"""Tags of messages from one rank to another that are counted one by one: those used last."""
AROUND_A_WAIT = 32
"""Calls up to one that waits which are written after all."""


class _Messages:
    """The messages from one rank to another, counted by their tags, as the other one counts them.

    A program may give each message a tag of its own, so that old ones are
    forgotten. From then on nobody knows of a new one whether it is new.
    """

    __slots__ = ("_counts", "_forgotten")

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, bool]] = {}
        """By tag, the one used last at the end: the number of its last message, and whether that is certain."""
        self._forgotten = False

    def next(self, tag: str, further: bool) -> tuple[int, bool]:
        """The number of a message, and whether that is certain."""
        number, sure = self._counts.pop(tag, (0, not self._forgotten))
        self._counts[tag] = found = number + further, sure
        if len(self._counts) > TAGS:
            del self._counts[next(iter(self._counts))]
            self._forgotten = True
        return found


class Ledger:
    """What the calls of one process are counted and written with.

    Calls that are not written stay in memory, the last of them. They are
    written when the process waits in one for long, or comes to its end: what
    a hang is told by. Numbers that are missing show what is not on record.
    """

    def __init__(self, writer: recorder.Recorder) -> None:
        self.writer = writer
        self._numbers: Counter[str] = Counter()
        self._messages: defaultdict[tuple[str, bool, int | None], _Messages] = defaultdict(_Messages)
        self._room = writer.limit * Call.share
        self._used = 0
        self._lines: Counter[tuple[str, int]] = Counter()
        self._tail: deque[Call] = deque(maxlen=TAIL)
        self._waits: tuple[int, float] | None = None
        self._on_device = 0
        """The ``n`` of the last call that was written since the device was in it for long."""

    def number(self, op: str, group: str, peer: int | None, detail: str, joined: bool) -> tuple[int, bool]:
        """The number of a call that begins: on its group, or between its two ranks; none further within join().

        And whether it is certain that it is the number which its partner gives it.
        """
        if op in PAIRWISE:
            return self._messages[group, op in RECEIVES, peer].next(detail, not joined)
        if not joined:
            self._numbers[group] += 1
        return self._numbers[group], True

    def last(self, group: str) -> int:
        """The number of the last call on a group."""
        return self._numbers[group]

    def forget_numbers(self) -> None:
        """Count from one again."""
        self._numbers.clear()
        self._messages.clear()

    def write(self, call: Call) -> None:
        """Write a call down, or keep it in mind."""
        line = (call.op, call.site)
        self._lines[line] += 1
        if self._used > self._room * FILLING and (self._lines[line] > OFTEN or self._used > self._room * NEARLY_FULL):
            self._tail.append(call)
            if call.waits:
                self._waits = (call.n, clock.now())
        else:
            self._write(call)

    def _write(self, call: Call) -> None:
        self._used += 48 + len(call.op) + len(call.group) + len(call.detail)
        self.writer.write(call)

    def went_on(self) -> None:
        """The last call has returned."""
        self._waits = None

    def look(self) -> None:
        """Write down the call in which the process has been for long, and those before it."""
        waits = self._waits
        scarce = self._used > self._room * NEARLY_FULL
        if waits is not None and clock.now() - waits[1] > (8 if scarce else 1) * main_thread.PERIOD:
            self.tell(AROUND_A_WAIT // 8 if scarce else AROUND_A_WAIT)
        device, _ = queued_calls.oldest()
        if device is not None and device != self._on_device:
            self._on_device = device
            self._tell_from(device, AROUND_A_WAIT // 8 if scarce else AROUND_A_WAIT)

    def _tell_from(self, n: int, most: int) -> None:
        """Write down the first of the calls in mind from a record's number on: the host may be far ahead of it."""
        found = [call for call in self._take() if call.n >= n]
        for call in found[:most]:
            self._write(call)
        self._tail.extendleft(reversed(found[most:][-TAIL // 2 :]))

    def _take(self) -> list[Call]:
        """The calls in mind, which are there no longer."""
        found: list[Call] = []
        while self._tail:
            try:
                found.append(self._tail.popleft())
            except IndexError:  # the other thread was quicker
                break
        return found

    def tell(self, most: int = TAIL) -> None:
        """Write down the last of the calls that are in mind."""
        last = self._take()
        room = min(most, int((self._room - self._used) / 100))
        for call in last[max(0, len(last) - room) :] if room > 0 else ():
            self._write(call)


_ledger: Ledger | None = None
_main = threading.main_thread


def ledger(writer: recorder.Recorder) -> Ledger:
    """The ledger that belongs to this recorder: a process that was forked has one of its own."""
    global _ledger
    if _ledger is None or _ledger.writer is not writer:
        _ledger = Ledger(writer)
    return _ledger


def known() -> Ledger | None:
    """The ledger of this process, if it has called anything."""
    return _ledger if _ledger is not None and _ledger.writer is recorder.always() else None


def look() -> None:
    """Do what has to be done now and then."""
    if (found := known()) is not None:
        found.look()


def tell() -> None:
    """Write down what is still in mind."""
    if (found := known()) is not None:
        found.tell()


def begin_again() -> None:
    """A new default group: its calls are counted from one."""
    if (found := known()) is not None:
        found.forget_numbers()


def on_main_thread() -> bool:
    """Whether this is the thread that pulses tell of."""
    return threading.get_ident() == _main().ident
