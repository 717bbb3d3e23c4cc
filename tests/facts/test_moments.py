"""Windows, put together from evidence that is written by hand: what belongs to which, and what does not."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.facts import moments
from tests.judging.written import Made, world


def pieces(*paths: str) -> Made:
    each = [
        ev.Piece(piece=n, model=0, path=path, dtype="float32", shape=(2,), sizes=(2,), offset=(0,))
        for n, path in enumerate(paths)
    ]
    return ev.Pieces, {"pieces": each}


def sketched(*numbers: float) -> bytes:
    return packed([[number] * NUMBERS for number in numbers])


def values(at_moment: str, number: int, of: dict[int, float], optimizer: int | None = 0, **more: object) -> Made:
    """What pieces held, each a number that its sketch is made of."""
    return ev.Values, {
        "at_moment": at_moment,
        "optimizer": optimizer,
        "number": number,
        "backwards": 0,
        "pieces": list(of),
        "places": list(of) if optimizer is not None else [-1] * len(of),
        "digests": b"".join(bytes([int(one)]) * ev.WIDTH for one in of.values()),
        "sketches": sketched(*of.values()),
        **more,
    }


def contributed(backward: int, of: dict[int, float], **more: object) -> Made:
    return ev.Contributions, {
        "backward": backward,
        "site": 7,
        "how": "backward",
        "pieces": list(of),
        "sketches": sketched(*of.values()),
        "whole": [False] * len(of),
        "versions": [0] * len(of),
        **more,
    }


def of(*records: Made) -> moments.Moments:
    """The moments of rank 0, which has these records."""
    return moments.of(next(iter(world(list(records), []))))


def numbers(each: dict[int, moments.Value]) -> dict[int, float]:
    return {piece: float(value.sketch[0]) for piece, value in each.items()}


def test_a_window_has_all_its_moments():
    """And the backwards between the step before and its own."""
    (window,) = of(
        pieces("a", "b"),
        values("W", 0, {0: 1, 1: 2}, optimizer=None),
        contributed(1, {0: 3, 1: 4}),
        contributed(2, {0: 5}),
        values("G", 0, {0: 8, 1: 4}, backwards=2),
        values("U", 0, {0: 6, 1: 7}, backwards=2),
        contributed(3, {0: 9}),
    ).windows[0]
    assert (window.optimizer, window.number, window.places) == (0, 0, {0: 0, 1: 1})
    assert numbers(window.before) == {0: 1, 1: 2}
    assert numbers(window.gradients) == {0: 8, 1: 4}
    assert numbers(window.after) == {0: 6, 1: 7}
    assert {piece: [one.backward for one in its] for piece, its in window.contributions.items()} == {0: [1, 2], 1: [1]}
    assert window.contributions[0][1].sketch.tolist() == [5.0] * NUMBERS
    assert window.gradients[0].digest == b"\x08" * ev.WIDTH


def test_a_step_that_was_not_looked_at_ends_a_window():
    """What came before it is of no later one: neither its backwards nor what was read then."""
    (window,) = of(
        pieces("a"),
        values("W", 0, {0: 1}, optimizer=None),
        contributed(1, {0: 3}),
        contributed(2, {0: 4}),
        values("G", 2, {0: 4}, backwards=2, since=(1, 2)),
    ).windows[0]
    assert [one.backward for one in window.contributions[0]] == [2]
    assert window.before == {}


def test_what_the_step_itself_has_read_counts():
    """Of a parameter that no forward has read."""
    (window,) = of(
        pieces("a"),
        values("W", 5, {0: 2}),
        values("G", 5, {0: 4}, since=(9, 40)),
        values("U", 5, {0: 1}),
    ).windows[0]
    assert numbers(window.before) == {0: 2}


def test_two_optimizers_have_windows_of_their_own():
    """A backward may lie in one of each, and contributes in both to all that it has reached."""
    found = of(
        pieces("a", "b"),
        values("W", 0, {0: 1, 1: 2}, optimizer=None),
        contributed(1, {0: 3, 1: 4}),
        values("G", 0, {0: 3}, backwards=1),
        values("U", 0, {0: 5}, backwards=1),
        contributed(2, {1: 6}),
        values("G", 0, {1: 10}, optimizer=1, backwards=2),
        values("U", 0, {1: 7}, optimizer=1, backwards=2),
    ).windows
    (one,), (other,) = found[0], found[1]
    assert (numbers(one.before), numbers(other.before)) == ({0: 1}, {1: 2})
    assert set(one.contributions) == {0, 1}
    assert [each.backward for each in other.contributions[1]] == [1, 2]


def test_what_has_frozen_or_gone_has_no_value():
    """A step that ended the process has no U, and what had no gradient no G."""
    (window,) = of(pieces("a", "b"), values("W", 0, {0: 1, 1: 2}), values("G", 0, {0: 3})).windows[0]
    assert (numbers(window.gradients), window.after) == ({0: 3}, {})
    assert numbers(window.before) == {0: 1}


def test_gradients_that_lie_otherwise_say_so():
    layout = ev.Layout(ground="DTensor", shape=(2,), mesh=0, placements=("P",), holders=(0,), local=(2,), offset=(0,))
    (window,) = of(
        pieces("a"), contributed(1, {0: 3}, layouts={0: layout}), values("G", 0, {0: 3}, backwards=1)
    ).windows[0]
    assert window.contributions[0][0].layout == layout
    assert window.gradients[0].layout is None


@pytest.mark.parametrize(
    "damage", [{"sketches": b""}, {"sketches": bytes(12)}, {"places": []}, {"digests": b"x"}], ids=str
)
def test_a_record_that_no_rank_can_have_written(damage: dict[str, object]) -> None:
    """It is damage, and not read."""
    kind, fields = values("G", 0, {0: 1}, **damage)
    with pytest.raises(ValueError, match="a piece has one place"):
        kind(n=0, at=0.0, **fields)
    made, contribution = contributed(1, {0: 1}, whole=[])
    with pytest.raises(ValueError, match="a piece has one sketch"):
        made(n=0, at=0.0, **contribution)
