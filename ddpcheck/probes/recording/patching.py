"""Putting a probe around a function of torch or the standard library, wherever it is reached from."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ddpcheck import seams
from ddpcheck.evidence import Defect
from ddpcheck.probes.recording import missing_seams, recorder, signal_exceptions
from ddpcheck.probes.recording.after_import import after_import
from ddpcheck.probes.recording.out_of_sight import Outside, hide, recover, show
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, overlooked
from ddpcheck.vocabulary.frame_lines import line_of_traceback

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""


def around(
    owner: Any,
    name: str,
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
    unless: Callable[[], bool] | None = None,
) -> bool:
    """Replace ``owner.name`` by what ``make`` builds around it; whether there was such an owner, and such a name.

    It is one of :mod:`ddpcheck.seams`: where it is missing, what rests on it
    is not checked. The same function under this name in other modules of torch (a
    ``from … import``) is replaced as well. A probe that fails is written down
    as a defect of ours, and the program gets what the function itself does.
    ``unless``: whether a call is to pass without a probe; it must not raise.
    """
    if owner is None:
        original = None
    else:
        original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None:
        missing_seams.note(seams.find(owner, name))
        return False
    bound = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    replacement = named(looking_like(bound)(shielded_around(bound, make, unless)), owner, name)
    if isinstance(owner, ModuleType):
        replace(owner, name, replacement)
    else:
        setattr(owner, name, staticmethod(replacement) if isinstance(original, staticmethod) else replacement)
    return True


def beforehand(owner: type, name: str, look: Callable[..., None]) -> None:
    """Have ``look`` called before each call of a method, with the same arguments.

    For one that calls itself down a tree: it takes one frame of each level, and the program's recursion has a limit.
    """
    original = vars(owner).get(name)
    if original is None:
        missing_seams.note(seams.find(owner, name))
        return

    def replacement(*args: Any, **kwargs: Any) -> Any:
        if not asleep():
            safely(look, *args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, named(looking_like(original)(replacement), owner, name))


def afterwards(owner: type | None, name: str, look: Callable[[Any], None], unless: Callable[[Any], bool]) -> None:
    """Have ``look`` called with the object after each call of its method, except where ``unless`` says so of it.

    For a method that is called often, and rarely of interest: ``unless`` runs without a shield, and must not raise.
    """
    original = vars(owner).get(name) if owner is not None else None
    if owner is None or original is None:
        missing_seams.note(seams.find(owner, name))
        return

    def replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not asleep() and not unless(self):
            safely(look, self)
        return result

    setattr(owner, name, named(looking_like(original)(replacement), owner, name))


def once_imported(name: str, task: Callable[[], object]) -> None:
    """Put probes in place when the program has imported a module, or now; their failure does not fail the import."""

    def safely() -> None:
        try:
            task()
        except Exception as error:
            defect(error)

    after_import(name, safely)


def replace(owner: ModuleType, name: str, replacement: Callable[..., Any]) -> None:
    """Put something else in the place of a module's function, also where other modules of torch have it."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    _replaced[id(original)] = (original, replacement)
    _as_builtin(original, replacement)
    for module in _torchs_modules():
        if getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)


def _as_builtin(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """TorchScript knows the functions that it has operators of its own for by identity: the replacement is one, too."""
    known = sys.modules.get("torch.jit._builtins")
    table = getattr(known, "_builtin_table", None)
    if table is not None:
        if id(original) in table:
            table[id(replacement)] = table[id(original)]
        return
    listed = getattr(known, "_builtin_ops", None)  # what the table will be made of
    if isinstance(listed, list):
        listed.extend([(replacement, operator) for one, operator in listed if one is original])


_found: tuple[int, list[ModuleType]] = (0, [])


def _torchs_modules() -> list[ModuleType]:
    """The modules of torch; looked for again when there are more modules than before."""
    global _found
    if _found[0] != len(sys.modules):
        _found = (len(sys.modules), [m for name, m in list(sys.modules.items()) if name.startswith("torch.")])
    return _found[1]


_replaced: dict[int, tuple[Any, Any]] = {}
"""Functions of modules, by identity, and what stands in their place."""


def probed(function: Any) -> Any:
    """What stands in the place of a function; the function itself where nothing does."""
    original, replacement = _replaced.get(id(function), (None, None))
    return replacement if original is function and original is not None else function


def rebind(is_users: Callable[[str], bool]) -> None:
    """Replace functions that a user's module has imported by their names before the probes were there."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_users(file):
            for name, value in list(vars(module).items()):
                if id(value) in _replaced and probed(value) is not value:
                    setattr(module, name, probed(value))


def named(replacement: Callable[..., Any], owner: Any, name: str) -> Callable[..., Any]:
    """The same, known by the name that it is found under: pickle sends functions to other processes by that."""
    replacement.__module__ = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    replacement.__qualname__ = name if isinstance(owner, ModuleType) else f"{owner.__qualname__}.{name}"
    return replacement


def looking_like(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As ``functools.wraps``; and the arguments are the original's for those, too, who do not ask what is wrapped.

    Such as ``inspect.getfullargspec``, by which libraries learn what this torch can be given.
    """

    def make(replacement: Callable[..., Any]) -> Callable[..., Any]:
        functools.update_wrapper(replacement, original)
        if isinstance(original, FunctionType):
            # They are only looked at: the replacement takes whatever it is given, and hands it on.
            replacement.__defaults__ = original.__defaults__
            replacement.__kwdefaults__ = original.__kwdefaults__
            # Of a function that is wrapped itself, what it wraps is asked; of a private one, nobody asks.
            private = original.__name__.startswith("_") and not original.__name__.startswith("__")
            if not private and not hasattr(original, "__wrapped__"):
                with contextlib.suppress(Exception):  # annotations that are names of nothing
                    replacement.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return replacement

    return make


class _Calls(threading.local):
    """The calls of one function that are under way in a thread, outermost first."""

    def __init__(self) -> None:
        self.open: list[_Call] = []


class _Call(Outside):
    """One of them."""

    called = False
    error: BaseException | None = None
    result: Any = None


def shielded_around(
    original: Callable[..., Any],
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
    unless: Callable[[], bool] | None = None,
) -> Any:
    """What ``make`` builds around a function, with its own failures kept from the program: that is called once."""
    calls = _Calls()

    def opened() -> list[_Call]:
        return calls.open

    def own(*args: Any, **kwargs: Any) -> Any:
        call = calls.open[-1] if calls.open else _Call()
        call.called = True
        hidden = call.hidden
        show(call)
        try:
            call.result = original(*args, **kwargs)
        except BaseException as error:
            call.error = error
            raise
        finally:
            if hidden:
                hide(call)
        return call.result

    probe = make(functools.wraps(original)(own))

    # The compiler looks at all that a function has around it, and may know nothing of objects: only functions are here.
    def replacement(*args: Any, **kwargs: Any) -> Any:
        # First of all, so that the compiler sees at once that there is nothing here.
        if asleep() or (unless is not None and unless()):
            return original(*args, **kwargs)
        calls = opened()
        call = _Call()
        calls.append(call)
        try:
            try:
                hide(call)
                return probe(*args, **kwargs)
            except Exception as error:
                if error is call.error:
                    raise
                defect(error)
                failed = call.error
            finally:
                calls.pop()
                show(call)
                # An error and the frames that it has gone through would keep each other, and what these were called
                # with: a loader's iterator that is exhausted has workers to let go of.
                result, call.error, call.result = call.result, None, None
        except BaseException:
            recover(call)
            raise
        if failed is None:
            return result if call.called else original(*args, **kwargs)
        try:
            raise failed
        finally:
            del failed

    return replacement


_told: set[str] = set()


def defect(error: Exception) -> None:
    """Write down that ddpcheck itself has failed in this process; once for each place.

    Out of memory is no failure. What the program's own signal handler has
    raised, in the midst of a probe, is raised again.
    """
    if signal_exceptions.raised_by_handler(error):
        raise error
    if is_out_of_memory(error):
        overlooked("memory")
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{line_of_traceback(trace)}" if trace is not None else ""
    writer = recorder.always()
    if writer is None or place in _told:
        return
    _told.add(place)
    try:
        text = "".join(traceback.format_tb(error.__traceback__))[-3000:]
        message = "".join(traceback.format_exception_only(error))[:1000]  # one of torch's dispatcher is very long
        writer.write(Defect(**writer.next(), text=text + message))
    except Exception as another:  # not even that can be written down: the program goes on all the same
        if signal_exceptions.raised_by_handler(another):
            raise


def shielded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A hook of ours that torch calls by itself: its failure is written down, and kept from the program."""

    @functools.wraps(function)
    def safe(*args: Any, **kwargs: Any) -> Any:
        return None if asleep() else safely(function, *args, **kwargs)

    return safe


def safely(probe: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call something of ours out of sight; its failure is written down, and kept from the program."""
    outside = Outside()
    try:
        try:
            hide(outside)
            return probe(*args, **kwargs)
        except Exception as error:
            defect(error)
            return None
        finally:
            show(outside)
    except BaseException:
        recover(outside)
        raise
