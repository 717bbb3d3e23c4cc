"""Another torch than we know: one that works as before, and has one of its names elsewhere."""

from __future__ import annotations

import builtins
import functools
import gc
import sys
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic

from ddpcheck import seams
from ddpcheck.seams import Seam

EVERYWHERE = "torch.nn.Module"
"""Whose attributes all of torch reads."""


_READERS = {
    "torch.autograd.backward": ("torch._tensor",),
    "torch.cuda.manual_seed_all": ("torch.random",),
    "torch.nn.init.kaiming_uniform_": ("torch.nn.modules.linear",),
    "torch.nn.init.uniform_": ("torch.nn.modules.linear",),
}
"""The modules that reach a function by way of its own."""


def can_be(seam: Seam) -> bool:
    """Whether it is torch's, and its class can do without."""
    home = seams.resolved(seam.home)
    alone = isinstance(home, type) and set(home.__bases__) <= {object, Generic}
    return seam.name.startswith("torch.") and not (_is_called_by_python(seam) and alone)


def rename(seam: Seam) -> None:
    """Have it under another name from now on, in this process, wherever torch itself uses it."""
    if not seam.is_there:
        return  # an older version
    home: Any = seams.resolved(seam.home)
    if seam.last == "NON_GROUP_MEMBER":
        _of_class(seam, home)
    elif seam.by_instances:
        _in_code(seam, None if seam.home == EVERYWHERE else home.__module__)
        vars(home).get("__annotations__", {}).pop(seam.last, None)
        if seam.last in vars(home):  # a property
            setattr(home, _other(seam.last), vars(home)[seam.last])
            delattr(home, seam.last)
    elif isinstance(home, ModuleType):
        _function(seam, home)
    elif not isinstance(home, type):
        _of_object(seam, home)
    elif _is_called_by_python(seam) or any(seam.last in vars(base) for base in home.__mro__[1:]):
        _to_a_base(seam, home)
    else:
        _behind(seam, home)
    assert not seam.is_there, seam.name


def _is_called_by_python(seam: Seam) -> bool:
    return seam.last.startswith("__")


def _other(name: str) -> str:
    return f"{name}_renamed"


def _function(seam: Seam, home: ModuleType) -> None:
    """Other modules have it by both names: what users and their libraries call is what it was."""
    value = getattr(home, seam.last)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch") and seam.last in vars(module):
            setattr(module, _other(seam.last), vars(module)[seam.last])
    delattr(home, seam.last)
    setattr(builtins, seam.last, value)  # where the module's own functions find it
    for module in _READERS.get(seam.name, ()):
        _in_code(seam, module)


def _of_class(seam: Seam, home: type) -> None:
    """Of the class itself."""
    setattr(home, _other(seam.last), vars(home)[seam.last])
    delattr(home, seam.last)
    _in_code(seam, None)


def _of_object(seam: Seam, home: Any) -> None:
    """Of an object: its class has it by another name."""
    kind = type(home)
    setattr(kind, _other(seam.last), vars(kind)[seam.last])
    _in_code(seam, kind.__module__)
    delattr(kind, seam.last)


def _to_a_base(seam: Seam, home: type) -> None:
    """What Python calls by its name comes from another class."""
    value = vars(home)[seam.last]
    inside: list[int] = []

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in inside:  # its super() is the next class from here, and it takes itself for one before
            return getattr(super(base, self), seam.last)(*args, **kwargs)
        inside.append(id(self))
        try:
            return value(self, *args, **kwargs)
        finally:
            inside.remove(id(self))

    # An object has room for attributes from one of its classes: from the same one as before.
    roomless = home.__bases__ != (object,) and not any(one.__dictoffset__ for one in home.__bases__)
    base = type(home)("Moved", home.__bases__, {seam.last: method} | ({"__slots__": ()} if roomless else {}))
    delattr(home, seam.last)
    home.__bases__ = (base,)


def _behind(seam: Seam, home: type) -> None:
    """A method that is found when it is asked for, and not before."""
    value = vars(home)[seam.last]
    before = getattr(home, "__getattr__", None)

    def __getattr__(self: Any, name: str) -> Any:
        if name == seam.last:
            return value.__get__(self, type(self)) if hasattr(value, "__get__") else MethodType(value, self)
        if before is not None:
            return before(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    delattr(home, seam.last)
    home.__getattr__ = __getattr__  # type: ignore[attr-defined]


def _in_code(seam: Seam, module: str | None) -> None:
    """In the code of a module's functions, or of all of torch's: as a name, and as the text of one."""
    for one in functions():
        if module in (None, one.__module__):
            code = _renamed(one.__code__, seam.last)
            if code is not one.__code__:
                one.__code__ = code


@functools.cache
def functions() -> list[FunctionType]:
    """All of torch's."""
    gc.unfreeze()  # what is frozen is not listed
    return [f for f in gc.get_objects() if type(f) is FunctionType and str(f.__module__).startswith("torch.")]


@functools.cache
def _renamed(code: CodeType, name: str) -> CodeType:
    names = tuple(_other(name) if n == name else n for n in code.co_names)
    constants = tuple(
        _renamed(c, name) if isinstance(c, CodeType) else _other(name) if isinstance(c, str) and c == name else c
        for c in code.co_consts
    )
    if names == code.co_names and all(a is b for a, b in zip(constants, code.co_consts, strict=True)):
        return code
    return code.replace(co_names=names, co_consts=constants)
