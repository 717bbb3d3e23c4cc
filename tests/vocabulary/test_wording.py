"""How ranks, counts and places are said."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.vocabulary.wording import count, listing, ranks_text, signal_name


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([1], "rank 1"),
        ([0, 2], "ranks 0 and 2"),
        ([1, 0], "ranks 0 and 1"),
        ([0, 1, 2], "ranks 0-2"),
        ([5, 0, 1, 2, 3], "ranks 0-3, 5"),
        ([0, 1, 3], "ranks 0-1, 3"),
        ([0, 2, 4], "ranks 0, 2, 4"),
        ([3, 3, 3], "rank 3"),
        (range(64), "ranks 0-63"),
        ({7: "a", 9: "b"}, "ranks 7 and 9"),
    ],
)
def test_ranks_are_named_shortly(ranks, text):
    """Ranks are named in order, each once, and runs of them by their ends."""
    assert ranks_text(ranks) == text


@settings(deadline=None, database=None)
@given(st.sets(st.integers(0, 70), min_size=3))
def test_every_rank_is_in_the_text(ranks):
    """The spans of a text contain the ranks, and no other."""
    named = set()
    for span in ranks_text(ranks).removeprefix("ranks ").split(", "):
        first, _, last = span.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == ranks


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, ["sample"], "0 samples"), (1, ["sample"], "1 sample"), (2, ["batch", "batches"], "2 batches")],
)
def test_nouns_follow_their_number(number, noun, text):
    """One has the singular, everything else the plural, with an s or as given."""
    assert count(number, *noun) == text


def test_large_numbers_are_grouped():
    """Thousands are set apart."""
    assert count(2_048_000, "element") == "2,048,000 elements"
    assert count(1, "batch", "batches") == "1 batch"


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], 5, ""),
        (["a"], 5, "a"),
        (["a", "b", "c"], 3, "a, b, c"),
        (["a", "b", "c", "d"], 3, "a, b, c and 1 more"),
        ((str(n) for n in range(100)), 2, "0, 1 and 98 more"),
    ],
)
def test_long_lists_are_cut(names, most, text):
    """The first names are given, and the number of the others."""
    assert listing(names, most) == text


def test_five_names_are_listed_by_default():
    """Without a limit of its own a list has five names."""
    assert listing("abcdef") == "a, b, c, d, e and 1 more"


@pytest.mark.parametrize("one", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_signals_are_named(one):
    """A signal has the name that the system gives it."""
    assert signal_name(int(one)) == one.name


def test_a_signal_without_a_name_is_a_number():
    """A signal that has no name is told by its number."""
    assert signal_name(1000) == "signal 1000"
