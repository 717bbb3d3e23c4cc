"""Learning rates of the ranks that hold the shards of one model."""

from __future__ import annotations

from ddpcheck.checks.optimizer_sync.run import judge
from tests.judging.sharded_models import digest, held, layout, mesh, model, optimizer, stepped
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
    result = judge(world(*ranks))
    return result.checked, [one for one in result.findings if "rate" in one.rule]


def test_a_rate_of_one_rank():
    checked, (found,) = of([(0.1, 0.1), (0.1, 0.2)])
    assert (checked, found.severity, found.step, found.where.line, found.count) == (2, "error", 1, 9, 1)
    assert found.found == "0.1 on rank 0; 0.2 on rank 1"


def test_the_same_rates():
    assert of([(0.1, 0.2)] * 2) == (2, [])


def test_models_of_several_meshes():
    """Each pair has one of its own."""
    assert of([(0.1,), (0.1,), (0.2,), (0.2,)], pairs=True)[1] == []


def test_optimizers_that_were_made_in_another_order():
    """The first of each rank is not that of the same model, and each model may have a rate of its own."""
    assert of([(0.1,), (0.2,)], models=[(0, 1), (1, 0)])[1] == []
    assert len(of([(0.1,), (0.2,)], models=[(0, 1), (0, 1)])[1]) == 1


def test_copies_that_are_stepped_by_other_rates():
    """They are not dealt out, and must be stepped alike all the same."""
    (found,) = of([(0.1,), (0.2,)], ("R",))[1]
    assert "hold copies" in found.expected


def test_a_shard_whose_steps_are_counted_otherwise():
    """The counters of torch's own optimizers, as after a load on one rank alone; those of one's own are its affair."""

    def ranks(*counts, **more):
        for rank, count in enumerate(counts):
            where = layout(rank, (2,), ("S0",))
            steps = [stepped(9, 0, ["g"], state={"step": digest(count), "exp_avg": digest(f"moment {rank}")})]
            yield [mesh((2,)), optimizer(3, {"weight": where}, **more), *steps]

    (found,) = judge(world(*ranks("1", "5"))).findings
    assert (found.severity, found.ranks, found.found) == ("error", (1,), "step to differ")
    assert judge(world(*ranks("1", "1"))).findings == ()
    assert judge(world(*ranks("1", "5", torchs=False))).findings == ()
