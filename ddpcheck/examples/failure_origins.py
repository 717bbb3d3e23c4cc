"""Where a failure comes from: what tells it apart from other failures, in the rank and where the engine runs.

The engine shrinks one failure at a time, and knows failures by the class of the
exception and by the line that raised it. So what a rank has raised is raised
once more in the engine's process, as such a class and at such a line.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import types
from typing import Any

from ddpcheck.vocabulary.frame_lines import line_of_traceback
from ddpcheck.vocabulary.model import CallSite, Origin
from ddpcheck.vocabulary.own_code import PACKAGE

_ENGINE = tuple(os.sep + name + os.sep for name in ("hypothesis", "_pytest", "pluggy"))
_MOST_CONTEXTS = 8

# --- in the rank


def origin_of(error: BaseException, depth: int = 0) -> Origin:
    """The class of an exception, the innermost line outside of this package, and the same of its context."""
    context = error.__context__
    return Origin(
        module=type(error).__module__,
        name=type(error).__qualname__,
        where=_line_of(error),
        context=origin_of(context, depth + 1) if context is not None and depth < _MOST_CONTEXTS else None,
    )


def _line_of(error: BaseException) -> CallSite | None:
    """The line that raised; where that is one of this package, the line that led to it.

    Its assertions all raise at one line, whatever they are about. Between the
    body and a draw that is refused there is hypothesis.
    """
    sites = []
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        sites.append(CallSite(file=code.co_filename, line=line_of_traceback(tb), function=code.co_name))
        tb = tb.tb_next
    if not sites:
        return None
    if not is_ours(sites[-1].file):
        return sites[-1]
    return next((site for site in reversed(sites) if not is_ours(site.file) and not is_engine(site.file)), sites[-1])


def is_ours(file: str) -> bool:
    """Whether a file belongs to this package."""
    return file.startswith(PACKAGE)


def is_engine(file: str) -> bool:
    """Whether a file is one of hypothesis', or of what calls a test."""
    return any(part in file for part in _ENGINE)


# --- of a stack that was taken from outside

_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)')
_LIBRARIES = tuple(
    {
        os.path.join(path, "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
)


def line_in(stack: str) -> CallSite | None:
    """The innermost line of a stack that is no library's; the innermost of all where there is none."""
    frames = [
        CallSite(file=found["file"], line=int(found["line"]), function=found["function"])
        for line in stack.splitlines()
        if (found := _FRAME.match(line))
    ]
    own = [frame for frame in frames if not frame.file.startswith((*_LIBRARIES, PACKAGE, "<"))]
    return next(iter(own or frames), None)


# --- where the engine runs


class RankFailure(Exception):
    """A failure in the ranks, as the engine of a property sees it."""

    text = ""
    traceback = ""
    record: Any = None
    """What happened in the ranks, where the failure is for the reader."""

    def __str__(self) -> str:
        return self.text


_classes: dict[tuple[str, str], type[RankFailure]] = {}


def raise_again(origin: Origin, text: str, **facts: Any) -> None:
    """Raise an exception of this class, at this line and in this context; with these attributes."""
    error = _made(origin, text)
    for name, value in facts.items():
        setattr(error, name, value)
    _raise_at(error, origin.where)


def _made(origin: Origin, text: str) -> RankFailure:
    kind = _class_of(origin)
    try:
        error = kind.__new__(kind, text)
    except Exception:  # a class that asks for more than a text, as groups of exceptions do
        kind = _stand_in(origin)
        error = kind.__new__(kind, text)
    error.text = text.removeprefix(f"{origin.module}.").removeprefix(f"{origin.name}: ")
    if origin.context is not None:
        context = _made(origin.context, "")
        try:
            _raise_at(context, origin.context.where)
        except RankFailure as raised:
            error.__context__ = raised
    return error


def _class_of(origin: Origin) -> type[RankFailure]:
    """A class with the name of the one that was raised, derived from it, so that what expects it knows it."""
    key = (origin.module, origin.name)
    if key not in _classes:
        original: Any = sys.modules.get(origin.module)
        for part in origin.name.split("."):
            original = getattr(original, part, None)
        groups = getattr(
            __import__("builtins"), "BaseExceptionGroup", ()
        )  # pytest's own outcomes do more than be raised
        usable = isinstance(original, type) and issubclass(original, (Exception, SystemExit, GeneratorExit))
        if not usable or issubclass(original, groups) or origin.module.startswith("_pytest"):
            return _stand_in(origin)
        try:
            _classes[key] = type(origin.name.rpartition(".")[2], (RankFailure, original), {"__module__": origin.module})
        except Exception:  # one that does not let itself be derived from
            return _stand_in(origin)
    return _classes[key]


def _stand_in(origin: Origin) -> type[RankFailure]:
    key = (origin.module, origin.name)
    if key not in _classes or len(_classes[key].__bases__) > 1:
        _classes[key] = type(origin.name.rpartition(".")[2], (RankFailure,), {"__module__": origin.module})
    return _classes[key]


def _raise() -> None:
    raise error  # type: ignore[name-defined]  # noqa: F821 - see below


def _raise_at(error: BaseException, where: CallSite | None) -> None:
    """Raise with a traceback whose innermost line is this one."""
    if where is None:
        raise error
    code = _raise.__code__.replace(
        co_filename=where.file, co_firstlineno=max(1, where.line - 1), co_name=where.function
    )
    types.FunctionType(code, {"error": error})()
