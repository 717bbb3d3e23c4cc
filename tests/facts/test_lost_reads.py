"""What was read for a model and is not in it, and moments beside parameters, from evidence that is written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.run import judge
from ddpcheck.facts import lost_reads, sketches
from tests.facts.test_moments import values
from tests.judging.sharded_models import held, model, stepped
from tests.judging.written import Made, loaded, world
from tests.judging.written_state import Forms, Value, moment, weight

SHAPE = (6, 5)
NAMES = ("a", "b", "c")
LOAD, CALL = 20, 30

Matrix = NDArray[np.float64]


def drawn(number: int) -> dict[str, Matrix]:
    draw = np.random.default_rng(number)
    return {name: draw.normal(size=SHAPE) for name in NAMES}


class Whole(Value):
    """A matrix of a state dict."""

    matrix: Matrix

    @property
    def digest(self) -> bytes:
        return self.matrix.tobytes()[: ev.WIDTH]

    @property
    def sums(self) -> bytes:
        added = [self.matrix.sum(), (self.matrix**2).sum()]
        return np.concatenate([sketches.of(self.matrix), added]).astype("<f8").tobytes()


def whole(name: str, matrix: Matrix) -> Whole:
    found = Whole(ev.Entry(name=name, kind=f"float32[{SHAPE[0]}, {SHAPE[1]}]"), ())
    found.matrix = matrix
    return found


def read(matrices: dict[str, Matrix], how: str = "torch.load", prefix: str = "net.") -> list[Made]:
    return Forms().read(LOAD, how, *(whole(prefix + name, one) for name, one in matrices.items()))


def called(matrices: dict[str, Matrix], number: int = 0, line: int = CALL, steps: int = 1) -> list[Made]:
    """A model that is called for the first time, and trained."""
    each = [held(name, kind="float32[6, 5]") for name in matrices]
    kind, fields = model(line, *each)
    place = [
        ev.Piece(
            piece=10 * number + n, model=number, path=name, dtype="float32", shape=SHAPE, sizes=SHAPE, offset=(0, 0)
        )
        for n, name in enumerate(matrices)
    ]
    sketched = b"".join(sketches.of(one).tobytes() for one in matrices.values())
    moments: list[Made] = []
    for at in "WGU":
        what, given = values(at, 0, {one.piece: 1.0 for one in place}, optimizer=number, since=(0, 0))
        moments.append((what, {**given, "places": list(range(len(place))), "sketches": sketched}))
    step = stepped(40, 0, ["g"], ["p"], optimizer=number)
    return [(kind, {**fields, "model": number}), (ev.Pieces, {"pieces": place}), *moments[:2], step, moments[2]] * steps


IN_VAIN = [loaded("module", LOAD, model=7)]
"""A load into an object that is never called."""


def lost(*records: list[Made]) -> list[tuple[str, ...]]:
    mine = [one for its in records for one in its]
    return [one.names for one in lost_reads.of(world(mine, []))]


def test_what_was_read_is_there() -> None:
    assert lost(read(drawn(1)), called(drawn(1))) == []


def test_nothing_of_it_is_there() -> None:
    assert lost(read(drawn(1)), IN_VAIN, called(drawn(2))) == [NAMES]
    assert lost(read(drawn(1), how="module", prefix=""), called(drawn(2))) == [NAMES]
    assert lost(read(drawn(1)), called(drawn(2))) == []  # the program may have read it for anything
    assert lost(read(drawn(1), how="dcp.load"), called(drawn(2))) == [NAMES]


@pytest.mark.parametrize(
    "made",
    [
        {**drawn(2), "b": drawn(1)["b"]},
        {name: 0.5 * (one + drawn(2)[name]) for name, one in drawn(1).items()},
        {name: 3 * one for name, one in drawn(1).items()},
        {name: one + 0.3 * drawn(2)[name] for name, one in drawn(1).items()},
    ],
    ids=["one matrix", "a mean", "scaled", "with noise"],
)
def test_something_of_it_is_there(made: dict[str, Matrix]) -> None:
    assert lost(read(drawn(1)), IN_VAIN, called(made)) == []


def test_other_names_and_shapes() -> None:
    others = {f"old.{name}x": one for name, one in drawn(1).items()}
    assert lost(read(others), called(drawn(2))) == []


def test_a_step_between() -> None:
    """What was read before the training is no affair of a model that is made later."""
    assert lost(read(drawn(1)), IN_VAIN, called(drawn(1)), called(drawn(2), number=1, line=50)) == []


def test_another_model_has_it() -> None:
    """Such as a teacher of the same class."""
    digests = b"".join(whole(name, one).digest for name, one in drawn(1).items())
    teacher = ev.Evaluated, {"kind": "Net", "number": 0, "site": 7, "module": 5, "buffers": ev.Tensors(),
                             "parameters": ev.Tensors(names=list(NAMES), digests=digests)}  # fmt: skip
    assert lost(read(drawn(1)), IN_VAIN, [teacher], called(drawn(2))) == []
    rounded = ev.Evaluated, {**teacher[1], "parameters": ev.Tensors()}
    into = [loaded("module", LOAD, model=5)]
    assert lost(read(drawn(1)), into, [rounded], called(drawn(2))) == []  # whatever has become of it there


# --- moments beside parameters


def found(*ranks: list[Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(one.rule, one.subject, one.ranks) for one in judge(world(*ranks)).findings]


def resumed(now: tuple[int, ...], its: tuple[int, ...] = (5, 6, 7), was: tuple[int, ...] = (1, 2, 9)) -> list[Made]:
    """A module and its optimizer are loaded; the parameter is this when it is stepped, and that is its moment."""
    forms = Forms()
    return [
        *forms.read(21, "module", weight("w", *was)),
        loaded("module", 21),
        *forms.read(22, "optimizer", weight("w", *now), moment("w", *its)),
    ]


def test_moments_of_other_weights() -> None:
    assert found(resumed((1, 2, 9)), resumed((1, 2, 9))) == []
    assert found(resumed((7, 7, 7)), resumed((7, 7, 7))) == [("moments-of-other-weights", "w", (0, 1))]
    assert found(resumed((7, 7, 7), its=(0, 0, 0))) == []  # its moments were begun anew as well


def test_weights_that_were_clamped() -> None:
    assert found(resumed((1, 2, 4)), resumed((1, 2, 4))) == []


def test_weights_that_another_rank_has_sent() -> None:
    assert found(resumed((7, 7, 8), was=(7, 7, 8)), resumed((7, 7, 8), was=(-4, 2, 1))) == []


def test_two_models_of_one_class() -> None:
    """Of whose names each has one: which parameter is whose is not known."""
    forms = Forms()
    first, second = (
        forms.read(21, "module", weight("w", *one), model=n) for n, one in enumerate([(1, 2, 9), (3, 3, 4)])
    )
    mine = [
        *first,
        *second,
        loaded("module", 21),
        *forms.read(22, "optimizer", weight("w", 1, 1, 1), moment("w", 5, 6, 7)),
    ]
    assert found(mine) == []
