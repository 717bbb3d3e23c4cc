"""Random streams in a property: they begin alike in every example, and are put back once, when it is over.

hypothesis saves and restores Python's and numpy's around each example. That is
a third of what it does for a small one, here and again in every rank.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hypothesis import core
from hypothesis.internal import entropy


@contextlib.contextmanager
def put_back_once() -> Iterator[None]:
    """Within this, each example of one property begins with seeded streams, and none puts them back but the last.

    Nothing is seeded before the first example: it is when hypothesis draws what its search begins with.
    """
    engine: Any = core
    of_each_example = engine.deterministic_PRNG
    begun: dict[int, tuple[Any, Any]] = {}
    within = False

    @contextlib.contextmanager
    def seeded(seed: int = 0) -> Iterator[None]:
        nonlocal within
        if within:  # an example of another property, in the body of this one
            with of_each_example(seed):
                yield
            return
        entropy.get_seeder_and_restorer(seed)  # takes numpy's stream in, once numpy is there
        for key, stream in _streams().items():
            if key not in begun:
                begun[key] = stream, stream.getstate()
            stream.seed(seed)
        within = True
        try:
            yield
        finally:
            within = False

    engine.deterministic_PRNG = seeded
    try:
        yield
    finally:
        engine.deterministic_PRNG = of_each_example
        for stream, state in begun.values():
            stream.setstate(state)


def _streams() -> dict[int, Any]:
    """All that are registered, but for hypothesis' own: no body draws from it, and every search begins with it."""
    home = getattr(core, "threadlocal", core)
    own = getattr(home, "_hypothesis_global_random", None)
    # .data, as hypothesis does: the dictionary itself may change while one goes through it.
    found = {key: ref() for key, ref in entropy.RANDOMS_TO_MANAGE.data.copy().items()}  # type: ignore[attr-defined]
    return {key: stream for key, stream in found.items() if stream is not None and stream is not own}
