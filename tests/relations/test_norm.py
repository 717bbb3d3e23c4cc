"""R4 over evidence that is written by hand: which norm explains the factors, and in which windows."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.facts import norms
from ddpcheck.judging.world import World
from ddpcheck.relations import norm as relation
from ddpcheck.relations.norm import Deviation
from tests.facts.clips import (
    SQUARES,
    clipped,
    copies,
    norm,
    of_all,
    of_each,
    shard,
    slices,
    stage,
    with_first_once,
)
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world

ALL = [0, 1, 2, 3]


class Read(NamedTuple):
    compared: list[int]
    """The numbers of the windows."""
    deviations: list[Deviation]


def scaling(team: norms.Team) -> Read:
    found = relation.scaling(team)
    return Read([one.number for one in found.compared], found.deviations)


def read(of: World) -> Read:
    (team,) = norms.of(of)
    return scaling(team)


def candidates(of: World) -> list[str]:
    return [one.candidate for one in read(of).deviations]


DEALT = (ev.Parallelised, {"how": "fully_shard", "site": 2, "ranks": (0, 1)})


def meshed(rank):
    return [mesh([2], ["tp"]), DEALT]


@pytest.mark.parametrize("how", ["hand", "torch", "DTensor"])
@pytest.mark.parametrize(
    ("where", "by", "expected"),
    [
        ([slices, slices], of_all, []),
        ([copies, slices], with_first_once, []),
        ([slices, slices], of_each, ["own"]),
        ([copies, slices], of_all, ["copies"]),
        ([slices, slices], lambda squares: [max(of_each(squares))] * 2, ["largest"]),
        ([slices, slices], lambda squares: [sum(of_each(squares))] * 2, ["sum"]),
        ([slices, slices], lambda squares: [sum(of_each(squares)) / 2] * 2, ["mean"]),
        ([slices, slices], lambda squares: [of_all(squares)[0] / math.sqrt(2)] * 2, ["mean square"]),
    ],
)
def test_the_norm_that_explains_the_factors(where, by, expected, how):
    """However the program comes to it: by hand, the bound is one number at all steps."""
    found = read(clipped(where, by, how, before=meshed))
    if how == "hand" and expected == ["mean square"]:
        assert (found.compared, found.deviations) == (ALL, [])  # with another bound, it is that of the whole
        return
    if how == "hand" and expected == ["mean"]:
        expected, by = ["sum"], lambda squares: [sum(of_each(squares))] * 2  # with another bound
    assert [one.candidate for one in found.deviations] == expected
    assert found.compared == ([] if expected else ALL)
    for one in found.deviations:
        assert [window.number for window in one.windows] == ALL
        assert one.norms == pytest.approx(by(SQUARES[0]))
        assert one.is_declared


@pytest.mark.parametrize(("where", "before"), [([shard], None), ([None], stage)], ids=["FSDP", "stages"])
@pytest.mark.parametrize(("by", "expected"), [(of_all, []), (of_each, ["own"])])
def test_other_grounds_for_parts(where, before, by, expected):
    """Shards of FSDP1, and stages of a pipeline."""
    given = {"before": before} if before else {}
    squares = [[[4.0], [16.0]], [[9.0], [1.0]], [[25.0], [36.0]]]
    assert candidates(clipped(where, by, "torch", squares, **given)) == expected


def test_the_largest_element_is_the_largest_of_all_ranks():
    """The infinity norm of the whole is the maximum of those of its parts."""

    def largest(squares):
        return [math.sqrt(max(map(max, squares)))] * 2

    assert read(clipped([slices, slices], largest, "torch", before=meshed, power=math.inf)).compared == ALL
    own = clipped(
        [slices, slices], lambda s: [math.sqrt(max(one)) for one in s], "torch", before=meshed, power=math.inf
    )
    assert candidates(own) == ["own"]


@pytest.mark.parametrize("number", [2, 3])
def test_how_many_factors_a_norm_of_a_part_explains(number):
    """Where the bound is not known, two factors may come to one bound by chance."""
    by_sum = clipped([slices, slices], lambda squares: [sum(of_each(squares))] * 2, squares=SQUARES[:number])
    assert read(by_sum).compared == []
    own = [[[4.0, 1.0], [4.0, 9.0]]]
    assert candidates(clipped([slices, slices], of_each, squares=own, before=meshed)) == ["none"]


@pytest.mark.parametrize(
    "factors",
    [
        [0.5, 0.5, 0.5],  # an average over two ranks
        [2.0**-12, 2.0**-11, 2.0**-11],  # the scale of a loss
        [0.1, 0.125, 0.11],  # a number of tokens
        [1.0, 1.0, 1.0],
    ],
)
def test_what_is_no_clip(factors):
    """Gradients are multiplied for other reasons, too."""
    steps = [(number, SQUARES[number], factor) for number, factor in enumerate(factors)]
    found = read(
        world(
            *(
                [mesh([2], ["tp"]), optimizer(3, {"w0": slices(rank), "w1": slices(rank)})]
                + [norm(number, squares[rank], factor, "all_reduce") for number, squares, factor in steps]
                for rank in range(2)
            )
        )
    )
    assert (found.compared, found.deviations) == ([], [])


@pytest.mark.parametrize(("bound", "expected"), [(math.inf, []), (9.0, ALL)])
def test_gradients_below_the_bound(bound, expected):
    """Torch's function, and nothing to clip; with no bound it is asked for the norm alone."""
    for how in ("torch", "DTensor"):
        found = read(clipped([slices, slices], of_all, how, bound=bound, before=meshed))
        assert (found.compared, found.deviations) == (expected, [])
    own = read(clipped([slices, slices], of_each, "torch", bound=bound, before=meshed))
    assert (own.compared, own.deviations) == ([], [])


def test_a_longer_gradient_that_was_left_alone():
    """Then the norm that explains the other factors is not what clips."""
    squares = [[[100.0, 1.0], [100.0, 9.0]] if number == 1 else step for number, step in enumerate(SQUARES)]

    def but_once(of_ranks):
        return [0.1, 0.1] if of_ranks[0][0] == 100 else of_all(of_ranks)

    assert read(clipped([slices, slices], but_once, squares=squares, before=meshed)).compared == []


@pytest.mark.parametrize(("kind", "expected"), [("float32[64]", ["none"]), ("bfloat16[64]", [])])
def test_how_far_rounding_takes_factors(kind, expected):
    """Sixteen bits round one factor to others."""
    ranks = []
    for rank, factor in enumerate([0.5, 0.502]):
        record, given = optimizer(3, {"w": shard(rank)})
        given["parameters"] = [replace(one, kind=kind) for one in given["parameters"]]
        ranks.append([(record, given), norm(0, [4.0], factor, "backward")])
    assert candidates(world(*ranks)) == expected


@pytest.mark.parametrize(
    ("shape", "dealt", "expected"),
    [((2, 8, 8), [DEALT], []), ((2, 64), [], []), ((2, 64), [DEALT], ["none"])],
    ids=["experts", "of the program's own", "slices"],
)
def test_factors_that_no_norm_explains(shape, dealt, expected):
    """Slices need one factor; whole entries of a stack may each have one, such as experts by their tokens."""
    ranks = world(
        *(
            [mesh([2], ["ep"]), *dealt, optimizer(3, {"experts": replace(slices(rank), shape=shape)})]
            + [norm(number, [4.0 + number], factor / (1 + number), "backward") for number in range(3)]
            for rank, factor in enumerate([0.5, 0.2])
        )
    )
    assert candidates(ranks) == expected


def test_one_window_in_which_slices_differ():
    """There is no reason for it, even once."""
    ranks = world(
        *(
            [optimizer(3, {"w": shard(rank)})]
            + [norm(number, [4.0], 0.1 if rank and number == 2 else 0.5, "backward") for number in range(4)]
            for rank in range(2)
        )
    )
    (found,) = read(ranks).deviations
    assert (found.candidate, [one.number for one in found.windows]) == ("none", [2])


def test_a_part_of_the_other_ranks():
    """The squares are summed up over pairs, and there are other experts."""
    squares = [[[7.0 + turn, own + turn * own] for own in (1.0, 2.0, 5.0, 3.0)] for turn in range(4)]

    def of_pair(of_ranks):
        experts = [of_ranks[0][1] + of_ranks[1][1], of_ranks[2][1] + of_ranks[3][1]]
        return [math.sqrt(of_ranks[rank][0] + experts[rank // 2]) for rank in range(4)]

    def of_every(of_ranks):
        return [math.sqrt(of_ranks[0][0] + sum(one[1] for one in of_ranks))] * 4

    given = {"squares": squares, "joint": ["world"], "group": lambda _, rank: "0,1#1" if rank < 2 else "2,3#1"}
    assert candidates(clipped([None, None], of_pair, **given)) == ["group"]
    assert read(clipped([None, None], of_every, **given)).compared == ALL


def test_replicas_that_are_summed_up_too():
    """Hybrid shards: a sum over all ranks counts every shard as often as there are replicas."""
    squares = [[[4.0 + turn], [9.0 + 2 * turn], [4.0 + turn], [9.0 + 2 * turn]] for turn in range(4)]

    def where(rank):
        return layout(rank, [2, 2], ["R", "S0"])

    def shards(of_ranks):
        return [math.sqrt(of_ranks[0][0] + of_ranks[1][0])] * 4

    given = {"squares": squares, "before": lambda _: [mesh([2, 2], ["dp", "shard"])]}
    for by, expected in ((shards, []), (of_all, ["replicas"])):
        teams = norms.of(clipped([where], by, "DTensor", **given))
        assert [team.ranks for team in teams] == [(0, 1), (2, 3)]
        assert [[one.candidate for one in scaling(team).deviations] for team in teams] == [expected] * 2


# --- copies


def test_equal_gradients_that_nothing_declares():
    """They are taken for copies where ranks compute together: a sum that counts them twice is no error by that."""
    (found,) = read(clipped([None, None], of_all, joint=["world"])).deviations
    assert (found.candidate, found.is_declared) == ("copies", False)
    assert read(clipped([None, None], with_first_once, joint=["world"])).compared == ALL
    assert candidates(clipped([None, None], of_all, squares=SQUARES[:2], joint=["world"])) == []


def reduced(rank):
    carried = ev.Carried(place=0, of="gradient", inside=False, group="world", number=-1, offset=0, alike=True)
    return [*stage(rank), (ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [carried]})]


def test_what_the_program_reduces_is_a_copy():
    """As a table of the first and the last stage is."""
    (found,) = read(clipped([None, None], of_all, before=reduced)).deviations
    assert (found.candidate, found.is_declared) == ("copies", True)
    assert read(clipped([None, None], with_first_once, before=reduced)).compared == ALL
    assert read(clipped([None, None], of_all, before=stage, squares=SQUARES[:2])).compared == [0, 1]


SAME = [[[4.0], [4.0]], [[9.0], [9.0]], [[1.0], [1.0]], [[16.0], [16.0]]]


@pytest.mark.parametrize("how", ["torch", "DTensor"])
def test_copies_on_all_ranks(how):
    """Each rank's own norm is that of the whole; one that is summed up over the ranks is not."""
    assert read(clipped([None], of_each, how, SAME)).compared == ALL
    (found,) = read(clipped([None], of_all, how, SAME)).deviations
    assert (found.candidate, found.is_declared) == ("copies", False)
    (found,) = read(clipped([copies], of_all, how, SAME)).deviations
    assert (found.candidate, found.is_declared) == ("copies", True)


def test_a_norm_of_copies_times_their_number():
    """The bound may be meant for the sum of their gradients: no error."""
    (found,) = read(clipped([copies], lambda step: [2 * one for one in of_each(step)], "torch", SAME)).deviations
    assert (found.candidate, found.is_declared) == ("sum", False)


def test_a_sum_over_copies_by_which_it_may_have_clipped():
    """The bound is not known: both norms explain the factors."""
    sums = {"came": lambda squares, _: 2 * squares[0][0]}
    for by in (of_each, of_all):
        found = read(clipped([None], by, squares=SAME, **sums))
        assert (found.compared, [one.candidate for one in found.deviations]) == ([], ["all copies"])
        unseen = read(clipped([None], by, squares=SAME))  # as where it sums up a list of squares
        assert (unseen.compared, unseen.deviations) == ([], [])


@pytest.mark.parametrize("by", [of_each, of_all])
def test_ranks_whose_gradients_differ(by):
    """Nothing says that they hold one model: each may clip its own."""
    for how in ("hand", "torch", "DTensor"):
        found = read(clipped([None, None], by, how))
        assert (found.compared, found.deviations) == ([], [])


def test_copies_on_some_ranks_alone():
    """A rank that steps as well, and was not seen to clip."""
    ranks = [[optimizer(3, {"w": None}), norm(0, [4.0], 0.25, largest=0.5, came=2.0), stepped(9, 0, ["g"])]] * 2
    assert read(world(*ranks)).compared == [0]
    assert read(world(*ranks, [optimizer(3, {"w": None}), stepped(9, 0, ["g"])])).compared == []


# --- clips at another moment


@pytest.mark.parametrize(
    ("scale", "bound", "more", "expected"),
    [
        (65536.0, 1.0, {}, ["scaled"]),
        (65536.0, 65536.0, {}, []),
        (1.0, 0.001, {}, []),
        (None, 1.0, {}, []),
        (65536.0, 1.0, {"came": 9.0}, []),  # of another optimizer's gradients
        (65536.0, 1.0, {"factor": 0.1 / 65536.0}, []),  # and these are divided by ten
        (65536.0, 1.0, {"factor": 1 / 65536.0}, []),
    ],
)
def test_clipped_before_the_scale_was_undone(scale, bound, more, expected):
    """A program may multiply its bound by the scale: that clip is right."""
    given = {"factor": min(1.0, bound / 2) / (scale or 1.0), "came": 2.0, **more}
    ranks = [[optimizer(3, {"w": None}), norm(0, [4.0], scale=scale, largest=bound, **given)]] * 2
    assert candidates(world(*ranks)) == expected


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_factors_that_torch_would_not_have_made(factor):
    """A clip that had no effect, or after which gradients were divided once more."""
    ranks = [[optimizer(3, {"w": None}), norm(0, [4.0], factor, largest=0.5, came=2.0), stepped(9, 0, ["g"])]] * 2
    found = read(world(*ranks))
    assert (found.compared, found.deviations) == ([], [])


@pytest.mark.parametrize(
    ("squares", "more"),
    [
        ((4.0, 9.0), {"factor": 0.1, "came": math.inf}),
        ((4.0, 9.0), {"factor": None, "came": math.inf}),
        ((math.inf, math.inf), {"factor": None, "came": math.inf}),
        ((math.inf, 4.0), {"factor": None, "came": 2.0}),
        ((1e308, 1e308), {"factor": 0.1, "came": 5.0}),
        ((4.0, 4.0), {"factor": math.nan, "came": 2.0}),
        ((4.0, 9.0), {"factor": 0.1, "came": 2.0, "power": 1e-300}),
        ((4.0, 9.0), {"factor": 0.1, "power": 400.0}),
    ],
)
@pytest.mark.parametrize("where", [None, shard, slices])
@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite(squares, more, where):
    """They give no finding and no coverage, and numpy prints no warning."""
    each = [
        [
            mesh([2]),
            optimizer(3, {"w": where and where(rank), "v": where and where(rank)}),
            norm(0, [square, square], largest=1.0, **more),
            stepped(9, 0, ["g"]),
        ]
        for rank, square in enumerate(squares)
    ]
    found = read(world(*each))
    assert (found.compared, found.deviations) == ([], [])


def test_copies_that_are_brought_together_now_and_then():
    """Local SGD: that gradients are the same at some step makes no reduction of them."""
    each = [
        [
            optimizer(3, {"w": None}, apart=True),
            norm(0, [s], None, largest=1.0, came=math.sqrt(s)),
            stepped(9, 0, ["g"]),
        ]
        for s in (4.0, 9.0)
    ]
    assert candidates(world(*each)) == []


def test_norms_that_are_nearly_zero():
    """They are compared by their own size."""
    tiny = [[[1e-16 * square for square in of_rank] for of_rank in step] for step in SQUARES]
    for by, expected in ((of_all, ALL), (of_each, [])):
        assert read(clipped([slices, slices], by, "torch", tiny, before=meshed)).compared == expected


def test_ranks_that_clip_to_bounds_of_their_own():
    """By the norm of the whole."""

    def to_own_bound(rank):
        records = [optimizer(3, {"w0": shard(rank), "w1": shard(rank)})]
        for number, step in enumerate(SQUARES):
            (came, _), bound = of_all(step), 0.5 / (1 + rank)
            records.append(norm(number, step[rank], bound / came, largest=bound, came=came))
        return records

    found = read(world(to_own_bound(0), to_own_bound(1)))
    assert (found.compared, [one.candidate for one in found.deviations]) == ([], ["none"])


def before_reduction(squares=(4.0, 9.0), factor=None, stepped_on=("g", "g"), **more):
    """Two ranks that each clip by its own norm, and step on what is reduced after that."""
    return world(
        *(
            [
                optimizer(3, {"w": None}),
                norm(0, [square], factor, largest=1.0, came=math.sqrt(square), **more),
                stepped(9, 0, [digest]),
            ]
            for square, digest in zip(squares, stepped_on, strict=True)
        )
    )


def test_clipped_before_the_reduction():
    """Gradients that differ when they are clipped are the same at the step."""
    (found,) = read(before_reduction()).deviations
    assert (found.candidate, found.norms) == ("unreduced", [2.0, 3.0])


@pytest.mark.parametrize(
    "more",
    [
        {"squares": (4.0, 4.0)},  # they were reduced before, and something was added
        {"stepped_on": ("g", "h")},  # and never are
        {"backwards_later": 1},  # a clip within a window, which accumulation-window is about
        {"squares": (0.4, 0.9)},  # nothing was clipped
    ],
)
def test_what_is_not_clipped_before_the_reduction(more):
    found = read(before_reduction(**more))
    assert (found.compared, found.deviations) == ([], [])


def test_windows_that_are_clipped_after_each_micro_batch():
    """The last clip is of the whole; what was added to clipped gradients is not known to be."""
    early = norm(0, [4.0], None, largest=1.0, came=2.0, backwards_later=1)
    last = norm(0, [9.0], 1 / 3, largest=1.0, came=3.0, moment=1)
    ranks = [[optimizer(3, {"w": None}), early, last, stepped(9, 0, ["g"])]] * 2
    found = read(world(*ranks))
    assert (found.compared, found.deviations) == ([], [])


# --- several optimizers


def two_optimizers(norm_of, both=True):
    """Two ranks whose slices are dealt out to two optimizers; ``both`` are scaled, or each by its own norm."""
    ranks = []
    for rank in range(2):
        records = [mesh([2], ["tp"]), *(optimizer(3, {f"w{n}": slices(rank)}, optimizer=n) for n in range(2))]
        for number, step in enumerate(SQUARES):
            for n in range(2):
                came = norm_of(step, n)
                moment = number if both else 10 * n + number
                measured = norm(number, [step[rank][n]], 0.5 / came, largest=0.5, came=came, optimizer=n, moment=moment)
                records.append(measured)
        ranks.append(records)
    return [scaling(team) for team in norms.of(world(*ranks)) if team.windows]


def of_part(step, optimizer):
    return math.sqrt(step[0][optimizer] + step[1][optimizer])


def test_a_clip_over_two_optimizers():
    """The norm of the whole is that of all parameters that were measured together, and scaled alike."""
    (both,) = two_optimizers(lambda step, _: of_all(step)[0])
    assert (both.compared, both.deviations) == (ALL, [])
    assert [one.compared for one in two_optimizers(of_part, both=False)] == [ALL, ALL]


@pytest.mark.parametrize("place", [0, 1])
def test_a_clip_of_two_optimizers_by_the_norm_of_one(place):
    (both,) = two_optimizers(lambda step, _: of_part(step, place))
    assert (both.compared, [one.candidate for one in both.deviations]) == ([], ["part"])
    assert both.deviations[0].norms == pytest.approx([of_part(SQUARES[0], place)] * 2)
    assert both.deviations[0].whole == pytest.approx(of_all(SQUARES[0])[0])
