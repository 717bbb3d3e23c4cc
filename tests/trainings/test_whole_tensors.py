"""Parts that ranks have recorded, put together: rows, columns, copies, and what some rank has not recorded."""

from __future__ import annotations

from array import array

from ddpcheck.evidence.training_record import Began, Part, Returned, Step
from ddpcheck.trainings.whole_tensors import with_whole_tensors


def numbers(*values: float) -> bytes:
    return array("d", values).tobytes()


def step(part: Part | None, data: bytes, gradient: bytes | None = b"") -> Step:
    parts = [part] if part is not None else []
    return Step(rates=[], before=[data], gradients=[gradient], after=[data], moments="", parts=parts)


def part(offset: tuple[int, ...], local: tuple[int, ...], copy: tuple[int, ...] = (0, 1)) -> Part:
    return Part(shape=(2, 3), offset=offset, local=local, copy=copy)


WHOLE = numbers(1, 2, 3, 4, 5, 6)


def test_whole_tensors_stay_as_they_are() -> None:
    """Of a model that is not sharded nothing is put together."""
    recorded = [[Began(parameters=["w"]), step(None, WHOLE)]] * 2
    assert with_whole_tensors(recorded) == recorded


def test_rows_and_columns() -> None:
    """Parts go where they begin, whichever dimension was cut; a rank may have none."""
    by_rows = [part((0, 0), (1, 3)), part((1, 0), (1, 3))]
    rows = with_whole_tensors([[step(by_rows[0], numbers(1, 2, 3))], [step(by_rows[1], numbers(4, 5, 6))]])
    by_columns = [part((0, 0), (2, 2)), part((0, 2), (2, 1))]
    columns = with_whole_tensors([[step(by_columns[0], numbers(1, 2, 4, 5))], [step(by_columns[1], numbers(3, 6))]])
    nothing = with_whole_tensors([[step(part((0, 0), (2, 3)), WHOLE)], [step(part((2, 0), (0, 3)), b"")]])
    for facts in (*rows, *columns, *nothing):
        assert facts[0].after == [WHOLE]


def test_copies_are_kept_apart() -> None:
    """A rank's whole is that of its own copy."""
    copies = [part((row, 0), (1, 3), copy) for copy in ((0, 1), (2, 3)) for row in range(2)]
    values = [numbers(1, 2, 3), numbers(4, 5, 6), numbers(7, 8, 9), numbers(0, 1, 2)]
    found = with_whole_tensors([[step(one, value)] for one, value in zip(copies, values, strict=True)])
    assert [facts[0].before for facts in found] == [[WHOLE]] * 2 + [[numbers(7, 8, 9, 0, 1, 2)]] * 2


def test_a_gradient_that_no_rank_has() -> None:
    """It is none; one that some ranks have is zero where it was not recorded."""
    halves = [part((0, 0), (1, 3)), part((1, 0), (1, 3))]
    nobody = with_whole_tensors([[step(one, numbers(1, 2, 3), None)] for one in halves])
    assert nobody[0][0].gradients == [None]
    one_rank = with_whole_tensors(
        [[step(halves[0], numbers(1, 2, 3), numbers(1, 1, 1))], [step(halves[1], numbers(4, 5, 6), None)]]
    )
    assert one_rank[1][0].gradients == [numbers(1, 1, 1, 0, 0, 0)]


def test_a_rank_that_was_killed_before_the_others() -> None:
    """What it has not recorded is zero, and the model at the end is put together, too."""
    halves = [part((0, 0), (1, 3)), part((1, 0), (1, 3))]
    end = Returned(parameters=[numbers(1, 2, 3)], parts=[halves[0]])
    found = with_whole_tensors([[step(halves[0], numbers(1, 2, 3)), end], []])
    assert found[0][0].after == found[0][1].parameters == [numbers(1, 2, 3, 0, 0, 0)]
