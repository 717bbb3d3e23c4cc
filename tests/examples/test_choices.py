"""Choices as plain data: what is packed comes out of a message as it went in, to the last bit."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.intervalsets import IntervalSet

from ddpcheck.examples.choices import ask_bytes, ask_of, pack, packed, plain, unpack
from ddpcheck.ranks import messages
from tests.ranks.test_messages import round_trip

quick = settings(deadline=None, database=None, max_examples=50)

any_text = st.text(st.characters())  # lone surrogates as well
any_choice = st.one_of(st.integers(), st.floats(), st.booleans(), any_text, st.binary())


def same(one, other):
    if isinstance(one, float):
        return type(other) is float and struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and one == other


@quick
@given(choices=st.lists(any_choice))
def test_choices_come_out_as_they_went_in(choices):
    """Integers of any size, every NaN and lone surrogates included."""
    message = round_trip(messages.Example(choices=pack(choices)))
    assert all(map(same, choices, unpack(message.choices)))
    assert len(message.choices) == len(choices)


@pytest.mark.parametrize(
    "choice",
    [2**64, -(2**63) - 1, 2**500, -0.0, math.inf, struct.unpack("d", b"\1\0\0\0\0\0\xf8\xff")[0], "\ud800", "", b""],
)
def test_the_edges(choice):
    assert same(choice, plain(round_trip(messages.Given(choice=packed(choice))).choice))


def test_what_is_no_choice_is_refused():
    with pytest.raises(TypeError, match="is no choice"):
        packed(object())


CONSTRAINTS = {
    "integer": {"min_value": -(2**70), "max_value": None, "weights": None, "shrink_towards": 0},
    "weighted": {"min_value": 0, "max_value": 2, "weights": {0: 0.5, 2: 0.25}, "shrink_towards": 0},
    "float": {"min_value": -math.inf, "max_value": 1.0, "allow_nan": True, "smallest_nonzero_magnitude": 5e-324},
    "string": {"intervals": IntervalSet(((97, 99), (0xD800, 0xDFFF))), "min_size": 0, "max_size": 10**10},
    "bytes": {"min_size": 1, "max_size": 4},
    "boolean": {"p": 0.25},
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_question_comes_out_as_it_went_in(name):
    """The constraints of a draw are rebuilt with hypothesis' own types."""
    ask = ask_of(ask_bytes(name, CONSTRAINTS[name], None, (2**64 - 1, True, False)))
    assert {key: plain(value, IntervalSet) for key, value in ask.constraints.items()} == CONSTRAINTS[name]
    assert ask.spans == (2**64 - 1, True, False)


def test_the_same_question_has_the_same_bytes():
    """Whatever the order of its constraints; another bound, a forced value or another structure is another question."""
    constraints = CONSTRAINTS["integer"]
    turned = dict(reversed(constraints.items()))
    assert ask_bytes("integer", constraints, None, (1,)) == ask_bytes("integer", turned, None, (1,))
    others = [
        ask_bytes("integer", constraints | {"max_value": 3}, None, (1,)),
        ask_bytes("integer", constraints, 5, (1,)),
        ask_bytes("integer", constraints, None, (2,)),
    ]
    assert ask_bytes("integer", constraints, None, (1,)) not in others


@pytest.mark.parametrize(
    ("name", "forced", "text"),
    [
        ("integer", None, f"an integer from {-(2**70)} to ∞"),
        ("integer", 7, f"an integer that is 7 from {-(2**70)} to ∞"),
        ("float", None, "a float from -inf to 1.0"),
        ("string", None, "a text of 0 to 10000000000 items"),
        ("bytes", None, "bytes of 1 to 4 items"),
        ("boolean", True, "a boolean that is True"),
    ],
)
def test_a_question_as_a_noun(name, forced, text):
    assert ask_of(ask_bytes(name, CONSTRAINTS[name], forced, ())).text == text
