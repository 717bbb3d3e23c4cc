"""Learning rates of the ranks that hold the shards of one model."""

from __future__ import annotations

import pytest

from ddpcheck.checks.optimizer_sync.shards import judge
from tests.judging.sharded_models import held, layout, mesh, model, optimizer, stepped
from tests.judging.written import world


def of(rates, placements=("S0",), shape=(2,), pairs=False, models=()):
    """Ranks that step a model of one parameter, each by its own rates; ``models``: those that a rank has, in order."""
    ranks = []
    for rank, rate in enumerate(rates):
        first = rank // 2 * 2 if pairs else 0
        where = layout(rank, shape, placements, first=first)
        steps = [stepped(9, n, ["g"], rates=[one]) for n, one in enumerate(rate)]
        met = [model(2, held("weight"), model=number) for number in (models[rank] if models else ())]
        ranks.append([mesh(shape, first=first), *met, optimizer(3, {"weight": where}), *steps])
    return judge(world(*ranks))


def test_a_rate_of_one_rank():
    checked, (found,) = of([(0.1, 0.1), (0.1, 0.2)])
    assert (checked, found.severity, found.step, found.where.line, found.count) == (2, "error", 1, 9, 1)
    assert found.found == "0.1 on rank 0; 0.2 on rank 1"


def test_the_same_rates():
    assert of([(0.1, 0.2)] * 2) == (2, [])


def test_models_of_several_meshes():
    """Each pair has one of its own."""
    assert of([(0.1,), (0.1,), (0.2,), (0.2,)], pairs=True) == (2, [])


def test_optimizers_that_were_made_in_another_order():
    """The first of each rank is not that of the same model, and each model may have a rate of its own."""
    assert of([(0.1,), (0.2,)], models=[(0, 1), (1, 0)]) == (0, [])
    assert len(of([(0.1,), (0.2,)], models=[(0, 1), (0, 1)])[1]) == 1


@pytest.mark.parametrize("placements", [("R",)])
def test_what_is_not_dealt_out(placements):
    assert of([(0.1,), (0.2,)], placements) == (0, [])
