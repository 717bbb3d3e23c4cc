"""A line is equal to itself, by whatever way the program came to it."""

from __future__ import annotations

from ddpcheck.vocabulary.model import CallSite


def test_equality_is_the_lines():
    main = CallSite(file="train.py", line=9, function="main")
    one, other = (
        CallSite(file="train.py", line=3, function="f", caller=main),
        CallSite(file="train.py", line=3, function="f"),
    )
    assert one == other
    assert (one != other) is False
    assert len({one, other}) == 1
    assert one != main
    assert one != "train.py:3 in f"
    assert one.chain == (main, one)
    assert str(one) == "train.py:3 in f"
