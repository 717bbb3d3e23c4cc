"""One call that communicates, from its beginning to its end: on record once, and told of while it waits."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch

from ddpcheck.evidence import Call
from ddpcheck.probes.collectives import call_log
from ddpcheck.probes.collectives.process_groups import group_key
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.files import writer_threads
from ddpcheck.probes.processes import main_thread, span_log
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.thread_state import here
from ddpcheck.vocabulary.clock import clock

REDUCTION = "ddp-gradients"

MOST_RESULTS = 64
"""Results of functional collectives that are known at a time: they are waited for soon, or never."""


class Pending:
    """A call that may still be waited for: by the program, or by the function of torch's that it has called."""

    __slots__ = ("ends", "made", "mark")

    def __init__(self, made: Call, mark: queued_calls.Mark | None, ends: Sequence[Callable[[], None]] = ()) -> None:
        self.made, self.mark, self.ends = made, mark, ends
        """``ends``: what is called when it is over."""


_works: weakref.WeakKeyDictionary[Any, list[Pending]] = weakref.WeakKeyDictionary()
"""By what is waited for; a batch of calls has one for all of them."""
_latest: dict[int, Any] = {}
"""By thread, the last of these: Python has no other hold of it until torch has handed it out."""
_looked_at: dict[int, int] = {}
"""By thread, what lay there at the last look."""
_results: OrderedDict[int, list[Pending]] = OrderedDict()
"""Of functional collectives, by where the result lies: nothing is held of it, and a view is waited for as well."""
_issued = 0
_joined = False
_reductions = 0
"""DDP's reductions that are under way."""


def issued() -> int:
    """Collectives of the user's own so far: DDP's are not among them."""
    return _issued


def set_joined(joined: bool) -> None:
    """Whether the program is inside of ``with model.join():``, where ranks need not do the same."""
    global _joined
    _joined = joined


def unwatched() -> bool:
    """Whether a call here is none of its own: nothing is recorded, or another call is under way."""
    return here.inside > 0 or recorder.current() is None or is_of_reduction()


def is_within() -> bool:
    """Whether this thread is in a call already."""
    return here.inside > 0


def is_of_reduction() -> bool:
    """Whether a call here is made by a communication hook, in which DDP's reduction calls back: in a thread of torch's
    own, too, where a hook goes on when its first call is over.
    """
    if here.inside:
        return here.current is not None and here.current.op == REDUCTION
    return _reductions > 0 and writer_threads.is_foreign()


def current() -> Call | None:
    """The call in which this thread is."""
    return here.current


class call:
    """A call that communicates, as a context; inside of another one it is no call of its own.

    ``group`` is a name of ``membership.group_key``, or the group itself;
    ``peer`` a global rank; ``always``: also where a probe is at work;
    ``device``: the GPU that it is queued on, for one that is; ``kind``: what
    it does, where that has another name.
    """

    __slots__ = (
        "_always",
        "_book",
        "_detail",
        "_device",
        "_group",
        "_kind",
        "_op",
        "_peer",
        "_waits",
        "goes_on",
        "made",
        "mark",
    )

    def __init__(
        self,
        op: str,
        group: Any = "world",
        detail: str = "",
        peer: int | None = None,
        waits: bool = True,
        always: bool = False,
        device: int | None = None,
        kind: str = "",
    ) -> None:
        self._op, self._group, self._detail, self._peer = op, group, detail, peer
        self._waits, self._always, self._device = waits, always, device
        self._kind = kind if kind != op else ""
        self._book: call_log.Ledger | None = None
        """Where it is recorded, once it is."""
        self.made: Call | None = None
        """The record, once it has begun."""
        self.mark: queued_calls.Mark | None = None
        self.goes_on = False
        """It is not over at the end of the context, but when it has been waited for."""

    def __enter__(self) -> call:
        writer = recorder.always() if self._always else recorder.current()
        if writer is None or here.inside:
            return self
        group = self._group if isinstance(self._group, str) else group_key(self._group)
        joined = _joined and not self._always
        book = call_log.ledger(writer)
        number, sure = book.number(self._op, group, self._peer, self._detail, joined)
        self.made = Call(
            **writer.next(),
            op=self._op,
            group=group,
            number=number,
            detail=self._detail,
            site=user_lines.here(),
            peer=self._peer,
            waits=self._waits,
            joined=joined,
            thread=writer_threads.name(),
            sure=sure,
            queued=self._device is not None,
            kind=self._kind,
        )
        global _reductions
        if self._device is not None:
            self.mark = queued_calls.begin(self.made.n, self._device, self._waits)
        _begin(book, self.made)
        _reductions += self._op == REDUCTION
        self._book = book
        here.inside += 1
        here.current = self.made
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _reductions
        try:
            if self.mark is not None and self._waits and kind is None and not self.goes_on:
                self.mark.end()
        finally:  # a signal handler of the program's may raise in there
            if self._book is not None:
                _reductions -= self._op == REDUCTION
                here.inside -= 1
                here.current = None
                if self.made is not None and not (self.goes_on and kind is None):
                    _went_on(self._book, self.made)


def remember(work: Any, one: Pending) -> None:
    """A call has given this to wait for."""
    if here.batch is not None:
        here.batch.append(one)
    with contextlib.suppress(TypeError):  # a backend with a kind of its own
        _works[work] = [one]
        _latest[threading.get_ident()] = work


def let_go(everywhere: bool = False) -> None:
    """Keep the last Work of this thread alive no longer; with ``everywhere``, those of all threads."""
    if everywhere:
        _latest.clear()
    elif _latest:
        _latest.pop(threading.get_ident(), None)


def let_go_in_time() -> None:
    """Let go of each Work that was there at the look before: torch has given it to its caller by now."""
    for thread, work in list(_latest.items()):
        if _looked_at.get(thread) == id(work):
            _latest.pop(thread, None)
    _looked_at.clear()
    _looked_at.update({thread: id(work) for thread, work in list(_latest.items())})


def remember_results(results: Iterable[torch.Tensor], one: Pending) -> None:
    """A functional collective gives these tensors; whoever reads one waits for the call within."""
    for result in results:
        if place := _place(result):
            _results[place] = [one]
            if len(_results) > MOST_RESULTS:
                _results.popitem(last=False)


def _place(tensor: Any) -> int:
    """The address of what a tensor's elements lie in; 0 where there is none."""
    own = readable_memory.storage(tensor) if isinstance(tensor, torch.Tensor) else None
    return own.data_ptr() if own is not None else 0


@contextlib.contextmanager
def batch() -> Iterator[list[Any]]:
    """Calls in here may be given one thing to wait for; to be put into the list, as far as there are such."""
    outer, here.batch = here.batch, []
    works: list[Any] = []
    try:
        yield works
    finally:
        calls, here.batch = here.batch, outer
        if 0 < len(works) < len(calls):  # otherwise each has its own, and is known by it
            with contextlib.suppress(TypeError):
                _works[works[-1]] = calls


def unwaited() -> list[Call]:
    """The asynchronous calls that the program could still wait for, and has not."""
    return [one.made for calls in list(_works.values()) for one in calls]


def of_work(work: Any) -> list[Pending]:
    """The calls that are waited for with this; none that is known of twice."""
    let_go()
    return _works.pop(work, [])


def of_result(tensor: Any) -> list[Pending]:
    """The same of the result of a functional collective."""
    return _results.pop(_place(tensor), []) if _results else []


class wait:
    """Waiting for the end of calls, as a context; of those that are not known, nothing.

    The wait within a synchronous function belongs to that call, and gets no record of its own.
    """

    __slots__ = ("_book", "_recorded")

    def __init__(self, calls: list[Pending]) -> None:
        self._book: call_log.Ledger | None = None
        self._recorded: list[Pending] = []
        writer = recorder.current()
        if writer is None:
            return
        self._book = call_log.ledger(writer)
        for one in calls:
            made = one.made
            if made.waits:
                self._recorded.append(one)
                continue
            waiting = Call(
                **writer.next(),
                op="wait",
                group=made.group,
                number=made.number,
                detail=made.detail,
                site=user_lines.here(),
                peer=made.peer,
                joined=made.joined,
                of=made.n,
                thread=writer_threads.name(),
                queued=made.queued,
            )
            self._recorded.append(Pending(waiting, one.mark))
            _begin(self._book, waiting)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._recorded:
            try:
                if one.mark is not None and kind is None:
                    one.mark.end()
            finally:
                if self._book is not None:
                    _went_on(self._book, one.made)
            for is_over in one.ends if kind is None else ():
                is_over()


def _begin(book: call_log.Ledger, made: Call) -> None:
    global _issued
    if not made.op.startswith("ddp-") and made.of is None and not made.joined:
        _issued += 1
    book.write(made)
    if made.waits and not made.thread:
        main_thread.waiting(made.n)


def _went_on(book: call_log.Ledger, made: Call) -> None:
    span_log.add(span_log.CALL, made.at, clock.now(), number=made.n)
    if not made.thread:
        main_thread.went_on()
        book.went_on()
