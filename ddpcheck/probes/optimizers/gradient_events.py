"""What happens around gradients, for all probes that follow them: backwards, steps, collectives, zero_grad(), clips."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ddpcheck.evidence import Call
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.files import writer_threads
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.probes.recording.patching import around, defect
from ddpcheck.vocabulary.clock import clock

MOST = 64
"""Optimizers whose gradients are looked at between steps: a program may have one for each parameter."""

ALWAYS = 8
"""Backwards, from a step of an optimizer on, at which its gradients are looked at whatever it costs."""
MOST_BACKWARDS = 256
"""Those after which they are not looked at at all: it may make no step any more."""
SHARE = 0.01
"""The share of a training's time that these looks may take."""
ALLOWANCE = 0.25
"""Seconds that the looks of a process may take beside their share of its time."""


class Event:
    """Something that happens again and again, and who wants to know of it; none of them keeps the others from it."""

    def __init__(self) -> None:
        self._hooks: list[Callable[..., Any]] = []

    def also(self, hook: Callable[..., Any]) -> None:
        """Have this called, too."""
        self._hooks.append(hook)

    def tell(self, *args: Any) -> list[Any]:
        """It happens; what those who were told of it have answered, but for None."""
        answers = []
        for hook in self._hooks:
            try:
                answer = hook(*args)
            except Exception as error:
                defect(error)
                continue
            if answer is not None:
                answers.append(answer)
        return answers


class Surroundings:
    """What stands around a call: who begins with it, the last to ask first, and ends with it, in turn."""

    def __init__(self) -> None:
        self._hooks: list[Callable[..., Callable[[bool], None] | None]] = []

    def also(self, hook: Callable[..., Callable[[bool], None] | None]) -> None:
        """Have this called as well; what it answers is called at the end, with whether the call came to one."""
        self._hooks.insert(0, hook)

    def around(self, call: Callable[[], Any], *args: Any) -> Any:
        """Make the call; none of these keeps the others from it."""
        ends, is_well = [], False
        try:
            for hook in self._hooks:
                try:
                    if (end := hook(*args)) is not None:
                        ends.append(end)
                except Exception as error:
                    defect(error)
            result = call()
            is_well = True
            return result
        finally:
            self._end(ends, is_well)

    def _end(self, ends: list[Callable[[bool], None]], is_well: bool) -> None:
        """Call them, the last to begin first: also where the program's own signal handler raises in one of them."""
        try:
            if ends:
                ends.pop()(is_well)
        except Exception as error:
            defect(error)
        finally:
            if ends:
                self._end(ends, is_well)


class Collectives:
    """The program's own collectives, and who wants to know of which of them: none is asked about the others."""

    def __init__(self) -> None:
        self._of_all = Event()
        self._of: dict[str, Event] = {}

    def also(self, hook: Callable[..., Any], kinds: Iterable[str] = ()) -> None:
        """Have this called, too: at collectives of these kinds, or at all of them."""
        for kind in kinds:
            self._of.setdefault(kind, Event()).also(hook)
        if not kinds:
            self._of_all.also(hook)

    def tell(self, exchange: Exchange, made: Call) -> list[Any]:
        """One begins; what those who were told of it have answered, but for None."""
        of_it = None if exchange.is_of_objects else self._of.get(exchange.kind)
        answers = self._of_all.tell(exchange, made)
        return answers + of_it.tell(exchange, made) if of_it is not None else answers


BACKWARD = Surroundings()
"""Every backward(): the losses that it was given, and the gradients that it begins with."""
BACKWARD_BEGINS = Event()
"""An outermost backward(), with what it was given."""
BACKWARD_ENDS = Event()
COLLECTIVE = Collectives()
"""One of the program's own begins: what it exchanges, and its record. An answer is called when it is over."""
EXCHANGED = Event()
"""Any collective of the program's within a backward(), also one in DDP's place: what it exchanges, and the group."""
CLIPPED = Event()
"""torch's own function begins to clip gradients, at this line."""
MODULE_CALLED = Event()
"""A module was called with gradients, by no other one: the module, and its number."""
STEP = Event()
"""An optimizer's step begins: the recorder, its number, the step's, its parameters, the line."""
STEPPED = Event()
"""It is over."""
ZEROED = Event()
"""zero_grad() was called."""

_numbers: MutableMapping[Any, int] = WeakIdKeyDictionary()
"""By identity, their numbers."""
_optimizers: dict[int, weakref.ref[Any]] = {}
"""By number, the optimizers. Every backward() goes through them, which takes long in a weak dictionary."""


class _Backwards:
    """The outermost ones of this process, and what the looks at them have taken."""

    count = 0
    since = clock.fine()
    spent = 0.0
    at_step: dict[int, int] = {}  # noqa: RUF012
    """By optimizer, how many there had been when it made its last step, or was met."""


_calling: set[int] = set()
"""The threads of the program's own that call backward()."""
_forwards: set[int] = set()
"""Those that call modules with gradients."""
_stepping: dict[int, int] = {}
"""By the number of an optimizer, the thread that has stepped it last."""


class Quiet:
    """Whether every optimizer is in a window that no probe records, as nearly all of a long training are."""

    now: bool | None = None
    """None until a probe asks, in each window anew."""
    recorded: list[Callable[[int], bool]] = []  # noqa: RUF012
    """For each probe, whether it records the current window of an optimizer."""


class Running:
    """The outermost backward() of this process that is under way, in whichever thread its hooks are called."""

    depth = 0
    site = 0
    """Its line; that of the last one, where none is under way."""


def watch() -> None:
    """See every backward from now on."""
    around(torch.autograd, "backward", _around_backward)
    BACKWARD.also(_begins)
    STEP.also(_stepped)
    MODULE_CALLED.also(_called)


def records_where(recorded: Callable[[int], bool]) -> None:
    """Register a probe that records the current window of an optimizer, by its number, where this is true."""
    Quiet.recorded.append(recorded)


def is_quiet() -> bool:
    """Whether no probe records a window now, so that work which serves such records can be left out."""
    if Quiet.now is None:
        known = numbers()
        is_recorded = any(recorded(number) for recorded in Quiet.recorded for number in known)
        Quiet.now = bool(known) and not is_lone() and not is_recorded
    return Quiet.now


def step_is_over() -> None:
    """End the window of an optimizer that has made a step, and begin the next one."""
    STEPPED.tell()
    Quiet.now = None


def follow(optimizer: Any, number: int) -> None:
    """An optimizer was built, or was seen to step for the first time."""
    Quiet.now = None
    _numbers[optimizer] = number
    _optimizers[number] = weakref.ref(optimizer, partial(_drop_optimizer, number))


def _drop_optimizer(number: int, _: Any) -> None:
    _optimizers.pop(number, None)
    Quiet.now = None


def number_of(optimizer: Any) -> int:
    """The number of an optimizer; -1 for one that was never met."""
    return _numbers.get(optimizer, -1)


def numbers() -> list[int]:
    """Of the optimizers that there are, as far as their gradients are looked at between steps."""
    return list(_optimizers)[:MOST]


def optimizers(wanted: Callable[[int], bool]) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Of the optimizers that there are those whose number is wanted, each with its parameters."""
    for number, known in list(_optimizers.copy().items())[:MOST]:  # the garbage collector may drop one meanwhile
        if wanted(number) and (optimizer := known()) is not None:
            groups = getattr(optimizer, "param_groups", ())  # none while its constructor is at work
            yield number, [p for group in groups for p in group["params"]]


def groups(number: int) -> list[dict[str, Any]]:
    """The groups of parameters of an optimizer, by its number."""
    known = _optimizers.get(number)
    optimizer = known() if known is not None else None
    return list(optimizer.param_groups) if optimizer is not None else []


def trained_here(wanted: Callable[[int], bool]) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The same of those that this thread trains, whose gradients may be looked at.

    Autograd writes gradients under no lock: to read one of another thread's while that trains may end the process.
    """
    here = threading.get_ident()
    alone = _calling <= {here}
    return optimizers(lambda number: (alone or _stepping.get(number) == here) and wanted(number))


def is_too_costly(optimizer: int) -> bool:
    """Whether a look at its gradients, at this backward(), would take more than its share of the training's time.

    A look takes as long as the optimizer has parameters, also where this backward() reaches none of them: one that
    seldom steps, or has stopped, waits for its next step during every backward() of the others.
    """
    number = _Backwards.count - _Backwards.at_step.setdefault(optimizer, _Backwards.count - 1)
    is_affordable = _Backwards.spent <= ALLOWANCE + SHARE * (clock.fine() - _Backwards.since)
    return number > (MOST_BACKWARDS if is_affordable else ALWAYS)


def several_train() -> bool:
    """Whether several threads of the program call backward(): what is counted for all of them belongs to none."""
    return len(_calling) > 1


def trains_for_itself(other: int) -> bool:
    """Whether a backward() of this thread is none of what another thread's forward has made."""
    here = threading.get_ident()
    return other not in (0, here) and here in _forwards


def _stepped(_: Any, optimizer: int, *__: Any) -> None:
    _stepping[optimizer] = threading.get_ident()
    _Backwards.at_step[optimizer] = _Backwards.count
    forget_gone(_stepping)
    forget_gone(_Backwards.at_step)


def _called(*_: Any) -> None:
    _forwards.add(threading.get_ident())


def forget_gone(known: dict[int, Any]) -> None:
    """Drop what is known of optimizers that are gone, by their numbers, where it has become much."""
    if len(known) > 4 * MOST:
        for number in [number for number in known if number not in _optimizers]:
            del known[number]


def is_within_backward() -> bool:
    """Whether a backward() is under way."""
    return Running.depth > 0


def _around_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is None:
            return original(*args, **kwargs)
        given = args[0] if args else kwargs.get("tensors")
        with_gradients = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        return BACKWARD.around(lambda: original(*args, **kwargs), given, with_gradients)

    return backward


def _begins(given: Any, _: Any) -> Callable[[bool], None]:
    here = threading.get_ident()
    if here not in _calling and not writer_threads.is_foreign():  # none of autograd's own
        _calling.add(here)
    if not Running.depth:
        Running.site = user_lines.here()
        _Backwards.count += 1
        _timed(BACKWARD_BEGINS, given)
    Running.depth += 1

    def is_over(is_well: bool) -> None:
        Running.depth -= 1
        if is_well and not Running.depth:
            _timed(BACKWARD_ENDS)

    return is_over


def _timed(event: Event, *args: Any) -> None:
    began = clock.fine()
    event.tell(*args)
    _Backwards.spent += clock.fine() - began
