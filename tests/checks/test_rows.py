"""Findings of the rows over ledgers: who is named, once, and what is not said; mostly of worlds with several groups."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts.holdings import name_within
from tests.judging import sharded_models, training_steps
from tests.judging.judged import OF_STEPS, run_judged
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import Made, world, wrapped

MODEL_CHECKS = ("initial-broadcast", "gradient-sync", "parameter-sync", "optimizer-sync", "buffer-sync")


def found(*ranks: list[Made], checks: tuple[str, ...] = tuple(OF_STEPS)) -> list[tuple[str, tuple[int, ...]]]:
    return [(judged.check, f.ranks) for judged in run_judged(world(*ranks), *checks) for f in judged.findings]


def of_check(check: str, *ranks: list[Made]) -> Any:
    (judged,) = run_judged(world(*ranks), check)
    return judged


# --- each group of ranks has findings of its own


def of_group(group: str, gradients: str, parameters: str, rate: float) -> list[Made]:
    return [wrapped(3, group=group), optimizer(0, 4), stepped(9, gradients, parameters, rates=[rate])]


def test_two_groups_with_one_fault_each() -> None:
    """Both call their wrapper and optimizer by the same numbers, and their tensors by the same names."""
    ranks = [
        of_group("0,1#1", "gh", "cd", 0.1), of_group("0,1#1", "xy", "mn", 0.2),
        of_group("2,3#2", "gh", "cd", 0.3), of_group("2,3#2", "kl", "op", 0.4),
    ]  # fmt: skip
    for check in ("gradient-sync", "parameter-sync", "optimizer-sync"):
        assert [f.ranks for f in of_check(check, *ranks).findings] == [(1,), (3,)]


def test_copies_of_each_shard() -> None:
    """A mesh of two by two: of both shards one copy differs."""
    shape, values = (2, 2), ("a", "b", "c", "d")
    ranks = [
        [
            sharded_models.mesh(shape, ("replicate", "shard")),
            sharded_models.optimizer(5, {"w": sharded_models.layout(n, shape, ("R", "S0"))}, [values[n]]),
            sharded_models.stepped(7, 0, [values[n]]),
        ]
        for n in range(4)
    ]
    for check in ("initial-broadcast", "gradient-sync", "parameter-sync"):
        assert [f.ranks for f in of_check(check, *ranks).findings] == [(2,), (3,)]


def test_two_optimizers_of_one_wrapper() -> None:
    """Their first parameters have one name."""

    def rank(first: str, second: str) -> list[Made]:
        made = [wrapped(3)]
        for number, letter in enumerate((first, second)):
            made += [optimizer(number, 4 + number, "a"), stepped(9 + number, letter, "c", of=number)]
        return made

    assert [f.where.line for f in of_check("gradient-sync", rank("g", "h"), rank("x", "y")).findings] == [9, 10]


# --- settings


def divided(groups: list[int], rates: list[float]) -> list[Made]:
    return [wrapped(3), optimizer(0, 4, groups=groups), stepped(9, "gh", rates=rates)]


def test_the_same_rates_in_other_groups() -> None:
    """What counts is the rate of each parameter, however a rank divides them into groups."""
    assert found(divided([2], [0.1]), divided([1, 1], [0.1, 0.1])) == []
    (finding,) = of_check("optimizer-sync", divided([2], [0.1]), divided([1, 1], [0.1, 0.2])).findings
    assert finding.found == "0.1 on rank 0; 0.2 on rank 1"


@pytest.mark.parametrize(("rates", "ranks"), [
    ((0.1, ev.UNREAD, 0.2), (2,)),
    ((0.1, 0.1, ev.UNREAD, ev.UNREAD, ev.UNREAD, 0.2), (5,)),
])  # fmt: skip
def test_a_rank_that_was_not_asked_is_not_accused(rates: tuple[float, ...], ranks: tuple[int, ...]) -> None:
    judged = of_check("optimizer-sync", *[divided([2], [rate]) for rate in rates])
    assert [f.ranks for f in judged.findings] == [ranks]
    assert judged.checked == 1


def test_rates_of_shards_whose_scale_was_not_asked_for() -> None:
    ranks = [
        [
            sharded_models.mesh((2,)),
            sharded_models.optimizer(5, {"w": sharded_models.layout(n, (2,), ("S0",))}),
            sharded_models.stepped(7, 0, ["g"], rates=[0.1 + n], scale=ev.UNREAD),
        ]
        for n in range(2)
    ]
    assert [f.rule for f in of_check("optimizer-sync", *ranks).findings] == ["optimizer-sync/unequal-learning-rates"]


def test_state_that_no_two_ranks_have() -> None:
    """Each has its share: nothing was compared."""

    def rank(state: bytes) -> list[Made]:
        return [wrapped(3), optimizer(0, 4), stepped(9, "gh", rates=[ev.UNREAD], state={"m": state})]

    one, other = digests("x") + ev.ABSENT, ev.ABSENT + digests("y")
    judged = of_check("optimizer-sync", rank(one), rank(other))
    assert (judged.checked, judged.findings) == (0, ())


# --- names


def evaluated(letters: str, kind: str = "Net") -> Made:
    held = ev.Tensors(names=["w"], digests=digests(letters))
    fields = {"number": 0, "parameters": held, "buffers": held, "site": 20, "module": 3}
    return ev.Evaluated, {"kind": kind, **fields}


@pytest.mark.parametrize("kind", ["Net{16}", "Net{x}", "{", "Net{0.real}"])
def test_a_class_whose_name_is_no_template(kind: str) -> None:
    for check in ("parameter-sync", "buffer-sync"):
        (finding,) = of_check(check, [evaluated("a", kind)], [evaluated("b", kind)]).findings
        assert finding.subject == f"the {kind} that is evaluated"


def test_parameters_whose_names_are_no_templates() -> None:
    ranks = [[wrapped(3), training_steps.optimizer(0, 4, "a"), stepped(9, letter, letter)] for letter in "gh"]
    named = [ev.Parameter(name="w{0}{x}", kind="float32[1]", wrapper=0, reduced=True)]
    for made in ranks:
        made[1][1]["parameters"] = named
    assert [f.subject for f in of_check("gradient-sync", *ranks).findings] == ["w{0}{x}"]


def test_names_of_two_tensors_that_a_prefix_would_make_one() -> None:
    """``module.`` stands for a wrapper where a name begins, and nowhere else."""
    assert name_within("module.module.a_module.w") == "a_module.w"
    assert name_within("a_module.w") == "a_module.w"
