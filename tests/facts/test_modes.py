"""The modes of windows, from evidence that is written by hand, and what forward-mode says of them."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.forward_mode.run import judge
from ddpcheck.facts import modes
from tests.facts.test_moments import contributed, pieces, values
from tests.judging.sharded_models import held, layout, mesh, model, optimizer, stepped
from tests.judging.written import Made, world, wrapped

LINE = 6


def ran(backward: int, training: str = "11", trained: str = "1", names: bool = True, **more: Any) -> Made:
    """Forwards of a model of two modules and one parameter, before this backward()."""
    given = {"modules": ["", "drop"], "parameters": ["weight"]} if names else {}
    flags = {"training": bytes(map(int, training)), "trained": bytes(map(int, trained))}
    return ev.Modes, {"model": 0, "backward": backward, "site": LINE, **flags, **given, **more}


def window(number: int, *before: Made, backwards: tuple[int, ...] = ()) -> list[Made]:
    """A step, and what came before it; the parameter got a contribution from each of these backward() calls."""
    calls = backwards or (number + 1,)
    seen = [contributed(one, {0: 1}) for one in calls]
    moments = [values(at, number, {0: 1}, backwards=calls[-1], since=(calls[0] - 1, number)) for at in "GU"]
    return [*before, *seen, moments[0], stepped(9, number, ["g"], ["p"]), moments[1]]


def rank(*windows: list[Made], where: ev.Layout | None = None, is_wrapped: bool = True) -> list[Made]:
    wrapper = [wrapped(2, module=0)] if is_wrapped else []
    described, given = optimizer(3, {"weight": where})
    parameters = [ev.Parameter(**{
        **{name: getattr(one, name) for name in one.__struct_fields__}, "wrapper": 0 if is_wrapped else None,
    }) for one in given["parameters"]]  # fmt: skip
    begin = [*wrapper, model(2, held("weight")), pieces("weight"), (described, {**given, "parameters": parameters})]
    return [*begin, *(record for one in windows for record in one)]


def judged(*ranks: list[Made]) -> Any:
    return judge(world(*ranks))


def test_ranks_in_one_mode() -> None:
    ours = rank(window(0, ran(1)), window(1, ran(2, names=False)))
    result = judged(ours, ours)
    assert (result.checked, result.of, result.findings) == (2, 2, ())


def test_a_rank_that_trains_in_evaluation_mode() -> None:
    (found,) = judged(
        rank(window(0, ran(1)), window(1, ran(2))), rank(window(0, ran(1)), window(1, ran(2, "00")))
    ).findings
    assert (found.severity, found.rule, found.step, found.ranks) == ("error", "different-training-modes", 1, (0, 1))
    assert (found.subject, found.where.line) == ("Net", LINE)
    assert found.found == "training mode on rank 0; evaluation mode on rank 1: 2 of 2 modules to differ: Net, drop"


def test_a_part_of_the_model_on_one_of_three_ranks() -> None:
    (found,) = judged(*[rank(window(0, ran(1, flags))) for flags in ("11", "10", "11")]).findings
    assert (found.ranks, found.subject) == ((1,), "drop")


def test_a_parameter_that_one_rank_has_frozen() -> None:
    (found,) = judged(rank(window(0, ran(1))), rank(window(0, ran(1, trained="0")))).findings
    assert (found.rule, found.subject) == ("different-frozen-parameters", "weight")
    assert found.found.startswith("trained on rank 0; frozen on rank 1")


def test_micro_batches_in_two_modes() -> None:
    """Each is reached by a backward() of the window."""
    both = rank(window(0, ran(1, "00"), ran(2), backwards=(1, 2)))
    (found,) = judged(rank(window(0, ran(1), ran(2), backwards=(1, 2))), both).findings
    assert "evaluation mode and training mode on rank 1" in found.found
    assert judged(both, both).findings == ()


@pytest.mark.parametrize("other", [
    [window(0, ran(1, "00", several=True))],  # which of them backward() reaches is not known
    [window(0, ran(7, "00"))],  # no backward() of this window
    [window(0)],
    [window(0, ran(1, "0", modules=["net"]))],  # another model
])  # fmt: skip
def test_a_mode_that_is_not_known(other: list[list[Made]]) -> None:
    result = judged(rank(window(0, ran(1))), rank(*other))
    assert (result.checked, result.findings) == (0, ())
    assert result.skipped_because


@pytest.mark.parametrize("placement", ["S0", "R"])
def test_ranks_that_hold_parts_or_copies_of_one_model(placement: str) -> None:
    ranks = [
        [mesh((2,)), *rank(window(0, ran(1, flags)), where=layout(n, (2,), (placement,)), is_wrapped=False)]
        for n, flags in enumerate(("11", "00"))
    ]
    assert len(judged(*ranks).findings) == 1


def test_ranks_that_train_each_its_own_model() -> None:
    """Nothing declares that they hold one."""
    ranks = [rank(window(0, ran(1, flags)), is_wrapped=False) for flags in ("11", "00")]
    assert modes.of(world(*ranks)) == []


def test_a_window_in_which_one_of_three_ranks_is_not_known() -> None:
    """It is not compared in full, and counts for nothing; what is seen to differ is found all the same."""
    known, unknown = rank(window(0, ran(1))), rank(window(0, ran(1, "00", several=True)))
    result = judged(known, known, unknown)
    assert (result.checked, result.findings) == (0, ())
    (found,) = judged(known, rank(window(0, ran(1, "00"))), unknown).findings
    assert found.rule == "different-training-modes"
