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
    """Within this, examples of one property leave the streams as they come; at its end they are as they were before."""
    engine: Any = core
    of_each_example = engine.deterministic_PRNG
    known: dict[int, Any] = {}
    begun: list[tuple[Any, Any]] = []
    within = False

    @contextlib.contextmanager
    def seeded(seed: int = 0) -> Iterator[None]:
        nonlocal within
        if within:  # an example of another property, in the body of this one
            with of_each_example(seed):
                yield
            return
        entropy.get_seeder_and_restorer(seed)  # takes numpy's stream in, once numpy is there
        for key, stream in list(entropy.RANDOMS_TO_MANAGE.items()):
            if key not in known:
                known[key] = stream
                begun.append((stream, stream.getstate()))
            stream.seed(seed)
        within = True
        try:
            yield
        finally:
            within = False

    with of_each_example():
        known.update(entropy.RANDOMS_TO_MANAGE)
        engine.deterministic_PRNG = seeded
        try:
            yield
        finally:
            engine.deterministic_PRNG = of_each_example
            for stream, state in begun:
                stream.setstate(state)
