"""What stands in the place of a function that is watched: the program notices nothing of it."""

from __future__ import annotations

import gc
import weakref

import pytest

from ddpcheck.observe.patching import around


@pytest.mark.parametrize("error", [StopIteration, ValueError, None])
@pytest.mark.parametrize("depth", [1, 2])
def test_nothing_keeps_what_a_call_was_given(error: type[Exception] | None, depth: int) -> None:
    """It goes with its last reference, also after a call that raised: an iterator that is exhausted has workers."""

    class Iterator:
        def advance(self) -> Iterator:
            if error is not None:
                raise error
            return self

    for _ in range(depth):
        around(Iterator, "advance", lambda original: lambda self: original(self))
    one = Iterator()
    gone = weakref.ref(one)
    gc.disable()
    try:
        try:
            one.advance()
        except (StopIteration, ValueError):
            assert error is not None
        else:
            assert error is None
        del one
        assert gone() is None
    finally:
        gc.enable()
