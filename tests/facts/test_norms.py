"""The ledger of norms, on evidence that is written by hand: which ranks belong together, and who holds copies."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.facts import norms
from tests.facts.clips import SQUARES, clipped, copies, norm, of_all, of_each, shard, slices, stage
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world


def hybrid(rank):
    return layout(rank, [2, 2], ["R", "S0"])


def over_four(rank):
    return [mesh([2, 2], ["dp", "shard"])]


FOUR = [[[4.0], [9.0], [1.0], [16.0]]]


@pytest.mark.parametrize(
    ("where", "before", "squares", "teams"),
    [
        ([shard], lambda _: [], SQUARES, [((0, 1), "FSDP", 1)]),
        ([slices], lambda _: [mesh([2])], SQUARES, [((0, 1), "DTensor", 1)]),
        ([slices], lambda _: [], SQUARES, [((0, 1), "copies", 1)]),  # the mesh is not on record
        ([None], stage, SQUARES, [((0, 1), "stages", 1)]),
        ([hybrid], over_four, FOUR, [((0, 1), "DTensor", 2), ((2, 3), "DTensor", 2)]),
        ([lambda rank: layout(rank, [2, 2], ["S0", "S1"])], over_four, FOUR, [((0, 1, 2, 3), "DTensor", 1)]),
        ([None], lambda _: [], FOUR, [((0, 1, 2, 3), "copies", 1)]),
    ],
)
def test_who_belongs_together(where, before, squares, teams):
    """As is declared: ranks that hold other slices of one tensor, or stages of one pipeline."""
    one = [[of_rank[:1] for of_rank in step] for step in squares]
    found = norms.of(clipped(where, of_all, squares=one, before=before))
    assert [(team.ranks, team.kind, team.replicas) for team in found] == teams


@pytest.mark.parametrize(
    ("joint", "equal", "apart", "kind"),
    [
        (["world"], True, False, "exchanged"),
        (["world"], False, False, "copies"),
        ([], True, False, "copies"),
        (["world"], True, True, "copies"),  # local SGD: a rank that steps a copy of its own clips by its own norm
    ],
)
def test_who_computes_together(joint, equal, apart, kind):
    """Without a declaration: an exchange within the backward, and a gradient that is the same on all of them."""
    squares = [[[2.0, 3.0], [2.0 if equal else 5.0, 4.0]], [[1.0, 3.0], [7.0, 4.0]]]
    (team,) = norms.of(clipped([None, None], of_all, squares=squares, joint=joint, described={"apart": apart}))
    assert (team.kind, len(team.windows)) == (kind, 2)


def test_copies_of_which_one_rank_measures_nothing():
    """It steps as well."""
    clips = [[optimizer(3, {"w": None}), norm(0, [4.0], 0.5), stepped(9, 0, ["g"])]] * 2
    (team,) = norms.of(world(*clips, [optimizer(3, {"w": None}), stepped(9, 0, ["g"])]))
    assert (team.ranks, len(team.windows[0].measures)) == ((0, 1, 2), 2)


@pytest.mark.parametrize(("local", "ranks"), [((0,), (0,)), ((16,), (0, 1))])
def test_slices_without_elements(local, ranks):
    """There is nothing to measure."""
    described = [optimizer(3, {"w": replace(slices(rank), local=local if rank else (16,))}) for rank in range(2)]
    (team,) = norms.of(world([mesh([2]), described[0], norm(0, [4.0], 0.5)], [mesh([2]), described[1]]))
    assert team.ranks == ranks


def test_holders_by_placements_wrappers_and_reductions():
    """Also partial sums, which nobody holds alike."""
    table = ev.Carried(place=3, of="gradient", inside=False, group="world", number=-1, offset=0, alike=True)

    def before(rank):
        return [mesh([2], ["tp"]), (ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [table]})]

    where = [copies, slices, lambda rank: replace(layout(rank, [2], ["P"]), holders=(0, 1)), None]
    squares = [[[1.0, 2.0, 3.0, 4.0], [1.0, 5.0, 6.0, 4.0]]]
    (team,) = norms.of(clipped(where, of_all, squares=squares, before=before))
    assert [sorted(one) for one in team.declared[0]] == [[0, 1], [0], [0], [0, 1]]


@pytest.mark.parametrize("windows", [2, 3])
def test_equal_gradients_are_seen_in_several_windows(windows):
    (team,) = norms.of(clipped([None, None], of_all, squares=SQUARES[:windows], joint=["world"]))
    assert [len(one) for one in team.declared[0]] == [1, 1]
    assert [len(one) for one in team.seen[0]] == [2 if windows > 2 else 1, 1]


def test_equal_gradients_of_parameters_that_began_otherwise():
    """Biases of members whose outputs are added up get the same gradients."""
    records = [
        [optimizer(3, {"w": None, "b": None}, values=["w", f"b{rank}"])]
        + [norm(n, one[rank], 0.5, joint=["world"]) for n, one in enumerate(SQUARES)]
        for rank in range(2)
    ]
    (team,) = norms.of(world(*records))
    assert team.kind == "exchanged"
    assert [len(one) for one in team.seen[0]] == [2, 1]
    apart = [
        [optimizer(3, {"w": None, "b": None}, values=[f"w{rank}", "b"]), *of[1:]] for rank, of in enumerate(records)
    ]
    assert [team.kind for team in norms.of(world(*apart))] == ["copies"]


def test_optimizers_that_ranks_number_differently():
    """A rank that trains a probe of its own on the side, and built its optimizer first."""
    own = [optimizer(3, {"probe": None}, optimizer=0), norm(0, [1.0], 0.1), stepped(9, 0, ["p"])]

    def shared(number):
        return [
            optimizer(4, {"w": shard(0)}, optimizer=number, kind="AdamW"),
            norm(0, [4.0], 0.5, optimizer=number, moment=7),
            stepped(9, 0, ["g"], optimizer=number),
        ]

    for first in (0, 1):
        ranks = [[*own, *shared(1)], shared(0)]
        teams = norms.of(world(*(ranks if not first else ranks[::-1])))
        assert sorted((team.kind, team.ranks) for team in teams) == [("FSDP", (0, 1)), ("copies", (first,))]


@pytest.mark.parametrize("values", [b"", ev.UNSEEN * 2])
def test_equal_gradients_of_parameters_that_nobody_looked_at(values):
    """Whether they began alike is not known."""
    record, given = optimizer(3, {"w": None, "b": None})
    clips = [[norm(n, one[rank], 0.5, joint=["world"]) for n, one in enumerate(SQUARES)] for rank in range(2)]
    assert [one.kind for one in norms.of(world(*([(record, given), *its] for its in clips)))] == ["exchanged"]
    given["values"] = values
    assert [one.kind for one in norms.of(world(*([(record, given), *its] for its in clips)))] == ["copies"]


def test_equal_gradients_that_are_a_constant():
    """As of a bias behind a sum."""
    squares = [[[4.0, one[0][1]], [4.0, one[1][1]]] for one in SQUARES]
    (team,) = norms.of(clipped([None, None], of_all, squares=squares, joint=["world"]))
    assert [len(one) for one in team.seen[0]] == [1, 1]


def test_slices_are_no_copies_whatever_they_hold():
    same = [[[one[0][0]], [one[0][0]]] for one in SQUARES]
    (team,) = norms.of(clipped([slices], of_all, squares=same, before=lambda _: [mesh([2])]))
    assert team.seen == team.declared == [[frozenset({0})], [frozenset({1})]]


def test_the_measurement_next_to_the_scaling():
    """A clip by torch's function, then the last one since which gradients were scaled."""
    made = [norm(0, [4.0], 0.5, "all_reduce", moment=0), norm(0, [4.0], 0.25, "all_reduce", moment=1)]
    for records, how, factor in (
        (made, "all_reduce", 0.25),
        ([*made, norm(0, [1.0], 1.0, "all_reduce", moment=2)], "all_reduce", 0.25),
        ([norm(0, [4.0], 0.5, moment=3), *made], "clip_grad_norm_", 0.5),
        ([norm(0, [4.0], None, moment=3), *made], "all_reduce", 0.25),
    ):
        (team,) = norms.of(world([optimizer(3, {"w": None}), *records], [optimizer(3, {"w": None}), *records]))
        assert [(one.first.how, one.factor) for one in team.windows[0].measures] == [(how, factor)] * 2
        assert len(team.windows[0].others[0]) == len(records)


def test_what_a_scaler_divides_by_is_no_factor():
    (team,) = norms.of(world(*[[optimizer(3, {"w": None}), norm(0, [4.0], 0.25, scale=2.0)]] * 2))
    assert team.windows[0].measures[0].factor == 0.5


@pytest.mark.parametrize("order", [("w", "v"), ("v", "w"), ("v", "w", "u")])
def test_an_optimizer_that_steps_the_same_tensors_later(order):
    """An outer one, in whatever order: what was measured for the inner one is none of its business."""
    described = [optimizer(3, {"w": None, "v": None}), optimizer(4, dict.fromkeys(order), optimizer=1)]
    outer = norm(0, [4.0] * len(order), None, moment=5, optimizer=1)
    ranks = [[*described, norm(0, [4.0, 1.0], 0.5, moment=5), outer]] * 2
    assert [team.optimizer for team in norms.of(world(*ranks))] == [0]


def test_optimizers_of_tensors_of_no_module_are_two():
    """They have the same names."""
    loose = [optimizer(3, {"parameter 0": None}, optimizer=number) for number in range(2)]
    for _, given in loose:
        given["parameters"] = [replace(one, model=None, path="") for one in given["parameters"]]
    both = [norm(0, [4.0], 0.5, moment=5, optimizer=number) for number in range(2)]
    (team,) = norms.of(world(*[[*loose, *both]] * 2))
    assert [len(one.norms) for one in team.windows[0].measures] == [2, 2]


@pytest.mark.parametrize(
    ("factors", "owns"),
    [
        ((0.5, 0.5), [math.sqrt(13)]),  # by one norm
        ((0.5, 0.25), [2.0, 3.0, math.sqrt(13)]),
        ((1.0, 1.0), [2.0, 3.0, math.sqrt(13)]),
    ],
)
def test_optimizers_that_were_measured_together(factors, owns):
    """Each one for itself, and all of them; where they are scaled by one number, all of them alone."""
    records = [optimizer(3, {"w": None}), optimizer(4, {"v": None}, optimizer=1)]
    records += [norm(0, [4.0], factors[0], moment=5), norm(0, [9.0], factors[1], moment=5, optimizer=1)]
    windows = [window for team in norms.of(world(*[records] * 2)) for window in team.windows]
    assert [one.measures[0].own for one in windows] == pytest.approx(owns)
    assert windows[-1].steps == {(0, 0), (1, 0)}
    assert windows[-1].measures[0].factor == (factors[0] if factors[0] == factors[1] else None)


def test_windows_on_other_parameters_are_left_out():
    """Optimizers may get more of them on their way."""
    records = [optimizer(3, {"w": None}), norm(0, [4.0], 0.5), optimizer(3, {"w": None, "v": None})]
    (team,) = norms.of(world(*[[*records, norm(1, [4.0, 9.0], 0.5)]] * 2))
    assert [one.number for one in team.windows] == [0]


def test_lines():
    """That of the measurement; that of the step where nothing but the end of backward() was seen."""
    for how, line in (("all_reduce", 7), ("backward", 9)):
        (team,) = norms.of(world(*[[optimizer(3, {"w": None}), norm(0, [4.0], 0.5, how)]] * 2))
        where = team.windows[0].measures[0].line
        assert where is not None
        assert where.line == line


def test_own_norms():
    (team,) = norms.of(clipped([shard, shard], of_each))
    assert [one.own for one in team.windows[0].measures] == pytest.approx(of_each(SQUARES[0]))
