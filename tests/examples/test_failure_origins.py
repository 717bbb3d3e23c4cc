"""Where a failure comes from, and the same failure raised once more elsewhere."""

from __future__ import annotations

import builtins
import sys

import pytest
from hypothesis.internal.escalation import InterestingOrigin

from ddpcheck.examples.failure_origins import RankFailure, line_in, origin_of, raise_again
from ddpcheck.vocabulary.model import CallSite, Origin


class OddError(Exception):
    """One that cannot be made of a text."""

    def __new__(cls, one, two):
        return super().__new__(cls)

    def __init__(self, one, two):
        self.one = one


class Final(Exception):
    """One that does not let itself be derived from."""

    def __init_subclass__(cls):
        raise TypeError("no")


def caught(function):
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def raises(error):
    raise error


def raises_in_a_context():
    try:
        raises(KeyError("x"))
    except KeyError:
        raises(ValueError("y"))


ERRORS = [
    ValueError("y"),
    OSError(2, "no"),
    SystemExit(3),
    UnicodeDecodeError("utf-8", b"", 0, 1, "odd"),
    OddError(1, 2),
]


@pytest.mark.parametrize("error", [*ERRORS, Final(), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_the_engine_sees_the_same(error):
    """The copy has the class' name, the line and the text, and is of the class where it can be."""
    original = caught(lambda: raises(error))
    origin = origin_of(original)
    copy = caught(lambda: raise_again(origin, f"{type(error).__name__}: the text", record=7))
    assert isinstance(copy, RankFailure)
    assert (type(copy).__name__, str(copy), copy.record) == (type(error).__name__, "the text", 7)
    seen, wanted = InterestingOrigin.from_exception(copy), InterestingOrigin.from_exception(original)
    assert (seen.filename, seen.lineno) == (wanted.filename, wanted.lineno) == (__file__, origin.where.line)
    assert isinstance(copy, type(error)) == (type(error) not in (OddError, Final, KeyboardInterrupt))
    again = caught(lambda: raise_again(origin, "another text"))
    assert InterestingOrigin.from_exception(again) == seen


def test_contexts_are_kept():
    """Two failures at one line that have come from different ones are different."""
    origin = origin_of(caught(raises_in_a_context))
    assert origin.context.name == "KeyError"
    seen = InterestingOrigin.from_exception(caught(lambda: raise_again(origin, "")))
    assert seen.context.exc_type.__name__ == "KeyError"
    alone = Origin(module=origin.module, name=origin.name, where=origin.where)
    assert InterestingOrigin.from_exception(caught(lambda: raise_again(alone, ""))) != seen


def test_a_class_that_is_not_here():
    """A class of a module that this process has not imported is stood in for, by its name."""
    origin = Origin(module="nowhere", name="Outer.Inner", where=CallSite(file="/x.py", line=3, function="f"))
    copy = caught(lambda: raise_again(origin, "nowhere.Outer.Inner: text"))
    assert (type(copy).__name__, type(copy).__module__, str(copy)) == ("Inner", "nowhere", "text")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of exceptions are new in 3.11")
def test_a_group():
    group = caught(lambda: raises(builtins.ExceptionGroup("several", [ValueError(1)])))
    copy = caught(lambda: raise_again(origin_of(group), "several"))
    assert type(copy).__name__ == "ExceptionGroup"
    assert not isinstance(copy, builtins.BaseExceptionGroup)


@pytest.mark.parametrize("line", [1, 2, 500])
def test_any_line(line):
    where = CallSite(file="/x.py", line=line, function="f")
    copy = caught(lambda: raise_again(Origin(module="builtins", name="ValueError", where=where), ""))
    assert InterestingOrigin.from_exception(copy).lineno == max(line, 2)  # no statement stands above its function


def test_the_line_of_an_assertion_is_the_test_s():
    """An assertion of this package raises at one line, whatever it is about."""
    from ddpcheck.ranks.current_rank import current

    def one():
        current("it")

    def another():
        current("it")

    lines = [origin_of(caught(function)).where for function in (one, another)]
    assert [where.function for where in lines] == ["one", "another"]
    assert {where.file for where in lines} == {__file__}


def test_the_line_in_a_stack():
    library = f'  File "{pytest.__file__}", line 12 in wait'
    own = '  File "/project/train.py", line 40 in loop'
    assert line_in(f"Thread 0x1:\n{library}\n{own}").line == 40
    assert line_in(library).line == 12
    assert line_in("") is None
