"""Random streams around and in the examples of a property."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, core, find, given, register_random, settings
from hypothesis import strategies as st

from ddpcheck.examples.random_streams import put_back_once


def drawn() -> tuple[float, float]:
    return random.random(), float(numpy.random.rand())


def test_examples_begin_alike_and_what_was_there_comes_back() -> None:
    """Streams begin at the same place in every example; after the last they go on where they were."""
    found: list[tuple[float, float]] = []

    @settings(max_examples=10, database=None, deadline=None)
    @given(n=st.integers())
    def body(n: int) -> None:
        found.append(drawn())

    before = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    ours: Any = core
    of_hypothesis = ours.deterministic_PRNG
    body()
    expected = found[0]
    found.clear()
    with put_back_once():
        body()
    assert set(found) == {expected}
    assert len(found) > 1
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == before  # type: ignore[index]
    assert ours.deterministic_PRNG is of_hypothesis


def test_a_search_begins_anew_each_time() -> None:
    """What is drawn is not the same in every session, nor in two properties of one: a search explores."""
    home: Any = getattr(core, "threadlocal", core)
    found: list[int] = []

    @settings(max_examples=30, database=None, deadline=None, derandomize=False)
    @given(n=st.integers(0, 10**12))
    def body(n: int) -> None:
        found.append(n)

    def searched() -> list[int]:
        found.clear()
        with put_back_once():
            body()
        return list(found)

    sessions, before = [], home._hypothesis_global_random
    try:
        for _ in range(2):
            home._hypothesis_global_random = None  # as before the first property of a session
            sessions.append([searched(), searched()])
    finally:
        home._hypothesis_global_random = before
    (first, second), (other, _) = sessions
    assert first != second
    assert first != other


def test_a_stream_that_is_registered_on_the_way() -> None:
    """A stream of the user's own is seeded from then on, and put back as well."""
    own = random.Random(3)
    at_first, found = own.getstate(), []

    @settings(max_examples=10, database=None, deadline=None)
    @given(n=st.integers())
    def body(n: int) -> None:
        register_random(own)
        found.append(own.random())

    with put_back_once():
        body()
    assert len(set(found[1:])) == 1
    assert found[1] == random.Random(0).random()
    begun = random.Random(3)
    begun.random()  # the first example was not seeded yet
    assert own.getstate() == begun.getstate() != at_first


def test_a_property_in_the_body_of_another() -> None:
    """Streams of the body go on behind an inner search, as hypothesis has it."""
    found: list[tuple[float, float]] = []

    @settings(max_examples=3, database=None, deadline=None, suppress_health_check=[HealthCheck.nested_given])
    @given(n=st.integers())
    def body(n: int) -> None:
        first = drawn()
        find(st.integers(), lambda _: drawn()[0] < 2, settings=settings(database=None, deadline=None))
        found.append((first[0], drawn()[0]))

    body()
    expected = found[0]
    found.clear()
    with put_back_once():
        body()
    assert set(found) == {expected}


def test_a_body_that_raises() -> None:
    """Where the property fails, the streams are put back all the same."""
    before = random.getstate()

    @settings(max_examples=3, database=None, deadline=None)
    @given(n=st.integers())
    def body(n: int) -> None:
        raise ZeroDivisionError(random.random())

    with pytest.raises(ZeroDivisionError), put_back_once():
        body()
    assert random.getstate() == before
