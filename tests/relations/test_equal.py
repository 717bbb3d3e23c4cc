"""R1 over holdings that are written by hand: who differs, at which looks, and what was compared."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck.evidence import ABSENT, UNSEEN, WIDTH
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.relations.equal import SUMMANDS, equality
from ddpcheck.vocabulary.model import CallSite

SPECIAL = {"?": UNSEEN, "-": ABSENT}


def digests(letters: str) -> bytes:
    """A tensor for each letter; ``?`` was not looked at, and ``-`` is not there."""
    return b"".join(SPECIAL.get(letter, letter.encode() * WIDTH) for letter in letters)


def line(holder: int) -> CallSite:
    return CallSite(file="train.py", line=10 + holder, function="main")


class Kernel:
    """A window of copies that each holder computes, so far apart in each place."""

    def __init__(
        self,
        distances: dict[int, float | None],
        device: bool = False,
        dtype: str = "float32",
        noise: frozenset[int] = frozenset(),
    ) -> None:
        self.distances, self.device, self.kind, self.noise = distances, device, dtype, noise

    def distance(self, moment: str, place: int) -> float | None:
        return self.distances.get(place)

    def dtype(self, place: int) -> str:
        return self.kind

    def is_noise(self, place: int, limit: float) -> bool:
        return place in self.noise

    def is_on_device(self, place: int) -> bool:
        return self.device

    def absent(self, places: list[int]) -> list[int]:
        return []


def holding(*looks: tuple[str, ...], moment: str = "buffers", ground: Ground | None = None, **more: Any) -> Holding:
    """Ranks that hold two tensors; each look has the letters of each rank."""
    seen = [Look(turn, tuple(map(digests, letters)), line) for turn, letters in enumerate(looks)]
    ranks = tuple(range(len(looks[0])))
    return Holding(moment, ranks, ["a", "b"], [0, 1], ground or Ground("wrapper"), seen, cause="given", **more)


def test_equal_holders() -> None:
    found = equality(holding(("gh", "gh"), ("ij", "ij")))
    assert (found.compared, found.deviation) == ([0, 1], None)


def test_a_holder_that_differs() -> None:
    """The first look, the places and the minority; the line is that of a holder that differs."""
    deviation = equality(holding(("gh", "gh", "gh"), ("ij", "ik", "ij"), ("lm", "xy", "lm"))).deviation
    assert deviation is not None
    assert (deviation.first.number, deviation.places, deviation.names) == (1, [1], ["b"])
    assert (list(deviation.odd), deviation.line, len(deviation.looks)) == ([1], line(1), 2)
    assert deviation.cause == "given"


def test_of_two_holders_the_first_is_the_usual_one_unless_none_is() -> None:
    assert list(equality(holding(("gh", "gx"))).deviation.odd) == [1]  # type: ignore[union-attr]
    mutual = holding(("gh", "gx"), ground=Ground("tied", usual="none"))
    assert list(equality(mutual).deviation.odd) == [0, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(("letters", "compared"), [
    (("g?", "gx"), [0]),  # what one holder has not looked at is not compared
    (("??", "gx"), []),
    (("--", "--"), []),  # nothing on either
])  # fmt: skip
def test_what_was_not_seen_proves_nothing(letters: tuple[str, ...], compared: list[int]) -> None:
    found = equality(holding(letters))
    assert (found.compared, found.deviation) == (compared, None)


def test_a_tensor_that_one_holder_does_not_have_differs() -> None:
    assert equality(holding(("g-", "gh"))).deviation is not None


def test_zeros_and_what_stays_prove_nothing_and_differ_all_the_same() -> None:
    zeros = frozenset({digests("0")})
    assert equality(holding(("0h", "0h"), empty=lambda _: zeros, idle=frozenset({1}))).compared == []
    assert equality(holding(("0h", "0x"), empty=lambda _: zeros, idle=frozenset({1}))).deviation is not None


def test_places_that_need_not_agree() -> None:
    found = equality(holding(("gh", "gx"))._replace(places=[0]))
    assert (found.compared, found.deviation) == ([0], None)


def test_one_holder_alone_is_compared_with_nobody() -> None:
    assert equality(holding(("gh",))) == equality(holding(("gh",)))._replace(compared=[], deviation=None)


@pytest.mark.parametrize(("ground", "is_found"), [
    (Ground("wrapper"), True),
    (Ground("stages", least=2), False),
    (Ground("left over", is_lasting=True), False),
])  # fmt: skip
def test_how_often_holders_have_to_differ(ground: Ground, is_found: bool) -> None:
    assert (equality(holding(("gh", "gx"), ("ij", "ij"), ground=ground)).deviation is not None) == is_found
    assert equality(holding(("gh", "gx"), ("ij", "ix"), ground=ground)).deviation is not None


def test_settings_are_compared_among_the_holders_that_were_asked() -> None:
    def settings(*values: object) -> Holding:
        looks = [Look(0, tuple((value,) for value in values), line)]
        return Holding("rates", tuple(range(len(values))), ["rate"], [0], Ground("wrapper"), looks)

    assert equality(settings(0.1, None, 0.1)).deviation is None
    assert equality(settings(0.1, None, 0.2)).deviation is not None
    assert equality(settings(None, None)).compared == []


EPSILON = 2.0**-23


@pytest.mark.parametrize(("distance", "device", "compared", "is_found"), [
    (0.5 * SUMMANDS * EPSILON, False, [0], False),
    (0.5 * SUMMANDS * EPSILON, True, [0], False),
    (0.01, False, [0], True),
    (0.01, True, [0], True),
    (None, False, [0], True),  # a CPU gives the same bits
    (None, True, [0], False),  # one tensor is equal, and of the other one nothing is known
])  # fmt: skip
def test_copies_that_each_holder_computes(
    distance: float | None, device: bool, compared: list[int], is_found: bool
) -> None:
    """They may be apart by rounding; what is reduced may not."""
    window = Kernel({1: distance}, device)
    looks = [Look(0, (digests("gh"), digests("gx")), line, window)]
    rounded = Ground("declared", is_rounded=True)
    given = Holding("gradients", (0, 1), ["a", "b"], [0, 1], rounded, looks, cause="given")
    found = equality(given)
    assert (found.compared, found.deviation is not None) == (compared, is_found)
    assert equality(given._replace(ground=Ground("declared"))).deviation is not None
    alone = equality(given._replace(places=[1]))
    assert (alone.compared, alone.deviation is not None) == ([] if distance is None and device else [0], is_found)


def test_copies_drift_apart_since_they_were_equal() -> None:
    """The square root of the windows since then: rounding goes either way."""

    def drifting(windows: int) -> Holding:
        distance = SUMMANDS * EPSILON * 1.5
        apart = Look(windows, (digests("gh"), digests("gx")), line, Kernel({1: distance}))
        same = [Look(0, (digests("gh"), digests("gh")), line, Kernel({}))]
        near = [Look(n, apart.values, line, Kernel({1: 0.0})) for n in range(1, windows)][:2]
        ground = Ground("declared", is_rounded=True)
        return Holding("parameters", (0, 1), ["a", "b"], [0, 1], ground, [*same, *near, apart], cause="given")

    assert equality(drifting(1)).deviation is not None
    assert equality(drifting(4)).deviation is None


@pytest.mark.parametrize(("dtype", "distance", "is_found"), [
    ("bfloat16", 0.01, False),
    ("bfloat16", 0.02, True),
    ("float16", 0.001, False),
    ("float16", 0.003, True),
    ("float64", 1e-7, True),
    ("int8", 1e-9, True),
])  # fmt: skip
def test_how_far_rounding_goes_by_type(dtype: str, distance: float, is_found: bool) -> None:
    looks = [Look(0, (digests("g"), digests("x")), line, Kernel({0: distance}, dtype=dtype))]
    ground = Ground("declared", is_rounded=True)
    found = equality(Holding("gradients", (0, 1), ["a"], [0], ground, looks, cause="given"))
    assert (found.deviation is not None) == is_found


def test_drift_is_counted_in_steps_and_not_in_looks() -> None:
    """Looks may be far apart."""
    far = Kernel({0: 5 * SUMMANDS * EPSILON})
    ground = Ground("declared", is_rounded=True)

    def at_step(number: int) -> Holding:
        same = Look(0, (digests("g"), digests("g")), line, Kernel({}))
        looks = [same, Look(number, (digests("g"), digests("x")), line, far)]
        return Holding("parameters", (0, 1), ["a"], [0], ground, looks, cause="given")

    assert equality(at_step(1)).deviation is not None
    assert equality(at_step(100)).deviation is None


def test_a_gradient_that_is_nothing_but_rounding() -> None:
    """Copies of it, and what is stepped on it, are not compared."""
    looks = [Look(0, (digests("g"), digests("x")), line, Kernel({0: 1.5}, noise=frozenset({0})))]
    ground = Ground("declared", is_rounded=True)
    found = equality(Holding("gradients", (0, 1), ["a"], [0], ground, looks, cause="given"))
    assert (found.compared, found.deviation) == ([], None)


def test_fewer_looks_than_have_to_differ_hold_nothing() -> None:
    found = equality(holding(("gh", "gx"), ground=Ground("stages", least=2)))
    assert (found.compared, found.deviation) == ([], None)


def test_each_tensor_has_its_own_drift() -> None:
    """One that is never equal to the last bit does not widen what the others may be apart."""
    near, far = 0.5 * SUMMANDS * EPSILON, 5 * SUMMANDS * EPSILON
    ground = Ground("declared", is_rounded=True)
    drifts = [Look(n, (digests("gh"), digests("xh")), line, Kernel({0: near})) for n in range(100)]
    last = Look(100, (digests("gh"), digests("xy")), line, Kernel({0: near, 1: far}))
    found = equality(Holding("parameters", (0, 1), ["a", "b"], [0, 1], ground, [*drifts, last], cause="given"))
    assert found.deviation is not None
    assert found.deviation.names == ["b"]
