"""Forwards of models in no wrapper: other states where ranks read other data."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.rng_independence.run import judge
from tests.judging.loaded import drawn, loader
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import held, mesh, model, optimizer, stepped
from tests.judging.written import ended, exchanged, world

SHARDED = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1)})
SPLIT = (ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)})


def forwards(states, number=0, **more):
    return [drawn(s, number=n, wrapper=None, model=number, **more) for n, s in enumerate(states)]


def of(*ranks, declared=(SHARDED,), number=(0, 0)):
    """Ranks that draw from these states in forwards of one model, which each has a number of its own for."""
    return judge(
        world(
            *[
                [*declared, model(9, held("w"), model=its), *forwards(states, its), ended()]
                for its, states in zip(number, ranks, strict=True)
            ]
        )
    )


# --- ranks that read other data


def test_shards_of_one_model():
    """FSDP averages over these ranks, and so each reads data of its own."""
    assert (of("ab", "cd").checked, of("ab", "cd").findings) == (2, ())
    (found,) = of("ab", "ab", number=(4, 7)).findings
    assert (found.severity, found.ranks, found.where.line, found.links) == ("warning", (0, 1), 30, ("model 4",))


def test_nobody_says_what_the_ranks_read():
    """Parts of one model may have to draw the same."""
    judged = of("ab", "ab", declared=())
    assert (judged.checked, judged.findings) == (0, ())
    assert of("ab", "ab", declared=(SPLIT,)).findings == ()


def test_peers_of_a_mesh_read_the_same():
    """Sharded over data and sequence, both: along the sequence all may draw the same noise."""
    ranks = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1, 2, 3)})
    axes = mesh((2, 2), ("dp", "cp"))
    assert of("ab", "ab", "cd", "cd", declared=(ranks, axes), number=range(4)).findings == ()
    (found,) = of("ab", "ab", "ab", "ab", declared=(ranks, axes), number=range(4)).findings
    assert found.ranks == (0, 1, 2, 3)


def reduced(states, *calls):
    parameters = {"w": None, "b": None}
    both = [carried(0), carried(1)][: len(calls) or 2]
    return [
        model(9, held("w")),
        optimizer(5, parameters),
        exchanged(0, *both),
        stepped(20, 0, "gh"),
        *forwards(states),
        ended(),
    ]


def test_gradients_that_the_program_reduces_itself():
    """All of them: these are copies of one model. Of some that are reduced nobody knows what they are."""
    (found,) = judge(world(reduced("ab"), reduced("ab"))).findings
    assert found.ranks == (0, 1)
    assert judge(world(reduced("ab"), reduced("cd"))).checked == 2
    assert judge(world(reduced("ab", 1), reduced("ab", 1))).findings == ()


@pytest.mark.parametrize("before", ["ab", "a"])
def test_one_state_is_put_back_on_several_ranks(before):
    """They drew apart before: that nobody has declared what they are does not matter."""

    def rank(letter, seed="state f1"):
        first = [model(9, held("w")), *forwards([letter + one for one in before])]
        return [*first, model(9, held("w"), model=1), *forwards("xy", 1, seeded=7, seed=seed), ended()]

    judged = judge(world(rank("p"), rank("q")))
    if before == "a":  # one forward may be a rehearsal
        assert judged.findings == ()
        return
    (found,) = judged.findings
    assert (found.where.line, found.cause) == (7, "the random state of one rank was restored on all of them")
    assert judge(world(rank("p"), rank("p"))).findings == ()
    assert judge(world(rank("p", "1"), rank("q", "1"))).findings == ()  # a seed, and no state


# --- what is drawn for a batch, before the forward


def for_batches(*ranks, numbers=40, distributed=True, place=None, parallel=(SHARDED,)):
    """Ranks that draw from these states after their batches, of which a sampler gives each its own."""
    return judge(
        world(
            *[
                [
                    *parallel,
                    loader(distributed=distributed, rank=number if place is None else place),
                    model(9, held("w"), model=0),
                    *(
                        drawn(s, "batch", n, pass_=None, wrapper=None, model=0, numbers=numbers)
                        for n, s in enumerate(states)
                    ),
                    ended(),
                ]
                for number, states in enumerate(ranks)
            ]
        )
    )


def test_noise_for_other_samples():
    judged = for_batches("ab", "cd")
    assert (judged.checked, judged.findings) == (2, ())
    (found,) = for_batches("ab", "ab").findings
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 30)
    assert found.count == 2


@pytest.mark.parametrize(
    "given",
    [
        {"numbers": 2},  # a choice that all ranks make alike
        {"distributed": False},  # a batch of all ranks, of which each may take its part
        {"place": 0},  # the same batch
        {"parallel": ()},  # nobody says what the ranks read
        {"parallel": (SHARDED, mesh((2,), ("cp",)))},
    ],
)
def test_numbers_that_may_be_alike(given):
    assert for_batches("ab", "ab", **given).findings == ()
