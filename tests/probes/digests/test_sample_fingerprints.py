"""Fingerprints of samples: equal for equal contents, made anywhere, and different for different ones."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.probes.digests.sample_fingerprints import Rows, fingerprint


@dataclasses.dataclass
class Box:
    left: int
    right: int


Point = collections.namedtuple("Point", "x y")


def fresh(text):
    """The same text as another object."""
    return "".join(list(text))


SAMPLES = {
    "tensor": lambda: torch.arange(6.0).reshape(2, 3),
    "another shape": lambda: torch.arange(6.0).reshape(3, 2),
    "another dtype": lambda: torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
    "no dimensions": lambda: torch.tensor(3),
    "one dimension": lambda: torch.tensor([3]),
    "empty tensor": lambda: torch.zeros(0),
    "zero": lambda: 0,
    "false": lambda: False,
    "zero as float": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "zero as complex": lambda: 0j,
    "zero as text": lambda: fresh("0"),
    "zero as bytes": lambda: b"0",
    "nothing": lambda: None,
    "no text": lambda: "",
    "no bytes": lambda: b"",
    "not a number": lambda: float("nan"),
    "a long text": lambda: fresh("text") * 50,
    "a surrogate": lambda: "\ud800",
    "another surrogate": lambda: "\ud801",
    "a replaced surrogate": lambda: "?",
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array of another shape": lambda: np.arange(6.0).reshape(3, 2),
    "array of another dtype": lambda: np.arange(6, dtype=np.int64).reshape(2, 3),
    "array of text": lambda: np.array([fresh("ab"), fresh("c")]),
    "array of objects": lambda: np.array([fresh("ab"), None], dtype=object),
    "array of other objects": lambda: np.array([fresh("ac"), None], dtype=object),
    "numpy number": lambda: np.int64(3),
    "numpy float": lambda: np.float32(3.0),
    "a pair": lambda: (1, 2),
    "a pair in a pair": lambda: (1, (2,)),
    "pairs": lambda: ((1, 2), 3),
    "other pairs": lambda: (1, (2, 3)),
    "no elements": lambda: (),
    "one empty element": lambda: ((),),
    "a mapping": lambda: {"image": torch.ones(2), "label": 1},
    "another mapping": lambda: {"image": torch.ones(2), "lobel": 1},
    "no entries": dict,
    "an empty mapping first": lambda: ({}, 1),
    "an empty mapping last": lambda: (1, {}),
    "entries apart": lambda: ({"a": 1}, {"b": 2}),
    "entries together": lambda: ({"a": 1, "b": 2}, {}),
    "bytes with a zero": lambda: (b"a\0b", b"c"),
    "bytes with a zero elsewhere": lambda: (b"a", b"b\0c"),
    "text": lambda: fresh("a"),
    "bytes like a text's": lambda: b"str 'a'",
    "a set": lambda: {8, 0},
    "another set": lambda: {8, 1},
    "a dataclass": lambda: Box(1, 2),
    "another dataclass": lambda: Box(2, 1),
    "a date": lambda: datetime.date(2020, 1, 2),
    "a decimal": lambda: decimal.Decimal("1.5"),
}


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_a_sample_that_is_made_twice_has_one_fingerprint(make):
    """Two ranks that read the same content get the same fingerprint, of sixteen hexadecimal digits."""
    print_ = fingerprint(make())
    assert print_ == fingerprint(make())
    assert len(print_) == 16
    assert set(print_) <= set("0123456789abcdef")


def test_different_samples_have_different_fingerprints():
    """Contents that differ in value, type, shape or structure are not taken for one sample."""
    prints = {name: fingerprint(make()) for name, make in SAMPLES.items()}
    assert [(a, b) for a, b in itertools.combinations(prints, 2) if prints[a] == prints[b]] == []


EQUAL = {
    "mappings in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "sets filled in another order": ({0, 8}, {8, 0}),
    "lists and tuples": ([1, 2], (1, 2)),
    "named tuples and tuples": (Point(1, 2), (1, 2)),
    "parameters and tensors": (torch.nn.Parameter(torch.ones(2)), torch.ones(2)),
    "layouts of a tensor": (torch.ones(2, 3).t(), torch.ones(3, 2)),
    "layouts of an array": (np.ones((2, 3)).T, np.ones((3, 2))),
    "kinds of bytes": (b"ab", bytearray(b"ab")),
    "views of bytes": (b"ab", memoryview(b"xabx")[1:3]),
    "one text twice, or two equal texts": ([fresh("ab")] * 2, [fresh("ab"), fresh("ab")]),
}


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_how_a_content_is_held_does_not_count(one, other):
    """The same content has the same fingerprint, however it was put together."""
    assert fingerprint(one) == fingerprint(other)


scalars = st.none() | st.booleans() | st.integers(-1, 1) | st.text("a\0", max_size=2)
samples = st.recursive(
    scalars | st.lists(st.sampled_from([b"", b"\0", b"a"]), max_size=3).map(b"".join),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=4,
)


def exact(sample):
    """A value that is equal for equal samples only: types, too, must agree."""
    if isinstance(sample, list):
        return ("list", *map(exact, sample))
    if isinstance(sample, dict):
        return ("dict", *sorted((key, exact(value)) for key, value in sample.items()))
    return (type(sample).__name__, repr(sample))


@settings(deadline=None, database=None, max_examples=40)
@given(st.lists(samples, min_size=2, max_size=10))
def test_fingerprints_are_equal_exactly_for_equal_samples(drawn):
    """Whatever plain data two samples are, their fingerprints are equal if and only if they are."""
    for one, other in itertools.combinations(drawn, 2):
        assert (fingerprint(one) == fingerprint(other)) == (exact(one) == exact(other))


# --- batches

ROWS = torch.arange(6).reshape(3, 2)
BATCHES = {
    "a tensor": (ROWS, [ROWS[0], ROWS[1], ROWS[2]]),
    "one row": (ROWS[:1], [ROWS[0]]),
    "fields": ((ROWS, ROWS[:, 0]), [(ROWS[i], ROWS[i, 0]) for i in range(3)]),
    "fields in a list": ([ROWS, ROWS[:, 0]], [(ROWS[i], ROWS[i, 0]) for i in range(3)]),
    "a mapping": ({"x": ROWS, "n": ["a", "b", "c"]}, [{"x": ROWS[i], "n": "abc"[i]} for i in range(3)]),
    "nested": ({"x": (ROWS, [1, 2, 3])}, [{"x": (ROWS[i], i + 1)} for i in range(3)]),
    "texts": (["a", "b"], ["a", "b"]),
    "bytes": ([b"a", b"b"], [b"a", b"b"]),
    "numbers": ([1, 2.5, True], [1, 2.5, True]),
    "one number": (torch.tensor(7), [torch.tensor(7)]),
    "fields of different lengths": ((ROWS, ROWS[:2]), [(ROWS, ROWS[:2])]),
    "no rows": ((ROWS[:0], ROWS[:0]), []),
    "an empty list": ([], []),
    "a text": ("abc", ["abc"]),
    "an object": (datetime.date(2020, 1, 2), [datetime.date(2020, 1, 2)]),
    "an array": (ROWS.numpy(), list(ROWS.numpy())),
}


@pytest.mark.parametrize(("batch", "expected"), BATCHES.values(), ids=BATCHES)
def test_a_batch_is_taken_apart_into_its_samples(batch, expected):
    """A collated batch gives its samples back, as the dataset had them."""
    found = list(Rows(batch))
    assert [fingerprint(s) for s in found] == [fingerprint(s) for s in expected]
