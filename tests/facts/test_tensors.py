"""Who is compared with whom: the holders of the same elements, and nobody else."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.gradient_sync import run as gradient_sync
from ddpcheck.checks.initial_broadcast import run as initial_broadcast
from ddpcheck.checks.optimizer_sync import run as optimizer_sync
from ddpcheck.checks.parameter_sync import run as parameter_sync
from ddpcheck.facts import parallelism_seen
from ddpcheck.facts.tensors import copies
from tests.facts.test_moments import values
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world

HSDP = (2, 2)
"""Two replicas of two shards: ranks 0 and 2 hold the same."""


def hsdp(gradients=("a", "b", "a", "b"), parameters=("a", "b", "a", "b"), values=None, placements=("R", "S0"), **more):
    """A step of a model of one parameter on each rank of a mesh."""
    return world(
        *[
            [
                mesh(HSDP, ("replicate", "shard")),
                optimizer(5, {"weight": layout(rank, HSDP, placements)}, [(values or "vwvw")[rank]]),
                stepped(7, 0, [gradients[rank]], [parameters[rank]], **more),
            ]
            for rank in range(4)
        ]
    )


def test_holders_are_compared_and_nobody_else():
    """Two pairs of ranks, each with the parameter that both hold."""
    found = copies(hsdp())
    assert [[rank.rank for rank in one.optimizer.ranks] for one in found if one.ground.along] == [[0, 2], [1, 3]]
    assert {one.ground.along for one in found if one.ground.along} == {"along replicate"}
    assert [one.parameters for one in found if one.ground.along] == [[0], [0]]


def ranks_of_norm(device, gradients, parallelised=()):
    """A step of a norm that every rank of a dimension computes for itself."""
    declared, given = mesh((2,), ("tp",))
    begin = [(declared, {**given, "device": device}), *parallelised]
    return [
        [*begin, optimizer(5, {"norm": layout(r, (2,), ("R",))}, ["n"]), stepped(7, 0, [gradients[r]])]
        for r in range(2)
    ]


NO_GRADIENT = ev.ABSENT.decode()
FSDP2 = (ev.Parallelised, {"how": "fully_shard", "site": 5, "ranks": (0, 1)})


def with_sketches(over, *numbers):
    """The same ranks, with sketches of the norm's gradient and value."""
    path = [ev.Piece(piece=0, model=0, path="norm", dtype="float32", shape=(64,), sizes=(64,), offset=(0,))]
    ranks = [
        [*over[rank], (ev.Pieces, {"pieces": path}), *(values(at, 0, {0: number}) for at in "GU")]
        for rank, number in enumerate(numbers)
    ]
    return world(*ranks)


@pytest.mark.parametrize(
    ("device", "parallelised", "apart", "expected"),
    [
        ("cpu", [], None, True),  # a CPU gives the same bits
        ("cuda", [], None, False),
        ("cuda", [FSDP2], None, True),  # what is reduced is the same to the last bit
        ("cuda", [], 1e-7, False),
        ("cpu", [], 1e-7, False),
        ("cuda", [], 0.1, True),
        ("cpu", [], 0.1, True),
    ],
)
def test_what_each_rank_computes_may_be_rounded(device, parallelised, apart, expected):
    """A kernel need not give the same bits twice: sketches show how far apart it leaves copies."""
    ranks = ranks_of_norm(device, "ab", parallelised)
    over = world(*ranks) if apart is None else with_sketches(ranks, 1.0, 1.0 + apart)
    for judge in (gradient_sync.judge, parameter_sync.judge):
        result = judge(over)
        assert [one.severity for one in result.findings] == ["error"] * expected
        # Where nobody knows how far apart they are, nothing is held.
        assert result.checked == (0 if apart is None and not expected else 1)
    assert gradient_sync.judge(world(*ranks_of_norm(device, "aa", parallelised))).findings == ()


def test_a_gradient_that_is_not_there_is_no_rounding():
    """On a device as well."""
    (found,) = gradient_sync.judge(world(*ranks_of_norm("cuda", ["a", NO_GRADIENT]))).findings
    assert found.severity == "error"


@pytest.mark.parametrize(
    ("judge", "checked"),
    [(gradient_sync.judge, 1), (parameter_sync.judge, 1), (initial_broadcast.judge, 2)],
    ids=["windows", "windows after steps", "models"],
)
def test_shards_may_differ(judge, checked):
    """What ranks of one replica hold is other parts."""
    judged = judge(hsdp())
    assert judged.findings == ()
    assert judged.checked == checked


def test_replicas_of_a_shard_must_agree_on_gradients():
    """The finding names the dimension, and the ranks alone that differ from their own holders."""
    (found,) = gradient_sync.judge(hsdp(gradients=("a", "b", "a", "c"))).findings
    assert found.ranks == (3,)
    assert "the ranks that hold copies (along replicate)" in found.expected
    assert found.where is not None
    assert found.where.line == 7


def test_replicas_of_a_shard_must_agree_on_parameters():
    """After each step."""
    (found,) = parameter_sync.judge(hsdp(parameters=("a", "b", "c", "b"), values="abab")).findings
    assert (found.ranks, found.subject) == ((2,), "weight")


def test_replicas_of_a_shard_must_begin_alike():
    """What differs from the start is said so, by the check of the start."""
    (found,) = initial_broadcast.judge(hsdp(values=("a", "b", "c", "b"))).findings
    assert found.ranks == (2,)
    assert "along replicate" in found.message


def test_replicas_of_a_shard_must_step_alike():
    """Rates, as under a wrapper."""
    judged = optimizer_sync.judge(hsdp())
    assert (judged.checked, judged.of) == (1, 1)
    assert judged.findings == ()
    apart = world(
        *[
            [
                mesh(HSDP),
                optimizer(5, {"weight": layout(rank, HSDP, ("R", "S0"))}),
                stepped(7, 0, ["a"], rates=[0.1 if rank < 2 else 0.2]),
            ]
            for rank in range(4)
        ]
    )
    assert {one.subject for one in optimizer_sync.judge(apart).findings} == {"the SGD's learning rate"}


def test_a_parameter_is_known_by_its_name_wherever_the_optimizer_has_it():
    """Ranks may have further parameters, such as experts of their own."""
    ranks = []
    for rank in range(2):
        shared = {"norm": layout(rank, (2,), ("R",))}
        own = {f"expert{rank}": None} if rank else {}
        names = {**own, **shared}
        ranks.append([mesh((2,)), optimizer(5, names), stepped(7, 0, ["x"] * len(own) + ["g"])])
    (found,) = [one for one in copies(world(*ranks)) if one.ground.along]
    assert [one.name for one in found.optimizer.described[0].parameters] == ["norm"]
    assert gradient_sync.judge(world(*ranks)).findings == ()


def test_placements_that_are_not_known_are_no_ground():
    """Nobody is compared, and the paragraph says how they are placed."""
    strange = world(
        *[
            [
                mesh((2,), ("dp",)),
                optimizer(5, {"w": layout(rank, (2,), ("?",))}),
                stepped(7, 0, ["ab"[rank]]),
            ]
            for rank in range(2)
        ]
    )
    assert gradient_sync.judge(strange).findings == ()
    assert "in a way that is not known" in parallelism_seen.paragraph(strange)


def test_the_paragraph_counts_by_placement():
    """A mesh by its names, and how many parameters lie how."""
    told = parallelism_seen.paragraph(hsdp())
    assert "DTensors over 4 ranks (replicate 2 x shard 2): 1 parameter" in told
    assert "replicated along replicate and sharded along shard" in told
    assert "Not seen: DDP, FSDP2, tensor parallelism, pipeline." in told


def test_a_run_of_which_nothing_is_understood_says_so():
    """Plain parameters that nobody reduces."""
    plain = world(*[[optimizer(5, {"w": None}), stepped(7, 0, ["g"])] for _ in range(2)])
    assert parallelism_seen.understood(plain) == ()
    assert parallelism_seen.paragraph(plain).startswith("nothing: no parameter")


def test_parameters_of_which_nobody_says_anything_are_counted():
    """Beside those that are understood: they were not compared."""
    ranks = [
        [
            mesh((2,), ("tp",)),
            optimizer(5, {"norm": layout(rank, (2,), ("R",)), "expert": None}),
            stepped(7, 0, ["n", "e"]),
        ]
        for rank in range(2)
    ]
    told = parallelism_seen.paragraph(world(*ranks))
    assert "1 parameter in no wrapper was not compared: nothing was seen to make it a copy." in told


# --- large meshes
