"""The judge of clip-norm, without processes: factors, sums of squares, and scalers."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.run import judge
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import Made, exchanged, world

SHARD = ev.Layout(ground="FSDP", placements=("F",), among=(0, 1), holders=(0,))
WHOLE = ev.Layout(ground="FSDP", placements=("R",), holders=(0, 1))


def norm(number: int, squares: list[float], factor: float | None, how: str = "clip_grad_norm_", **more: Any) -> Made:
    """A measurement at line 7, before the step of line 9."""
    given = {"optimizer": 0, "site": 7, "squares": ev.packed(squares), "step_site": 9, **more}
    return ev.Norm, {"number": number, "how": how, "factor": factor, **given}


def of_fsdp(factors: list[float], squares: list[float], number: int = 0, **more: Any) -> Any:
    """Two ranks with a shard each."""
    return world(
        *(
            [optimizer(3, {"flat": SHARD}), norm(number, [square], factor, **more), stepped(9, 0, ["g"])]
            for factor, square in zip(factors, squares, strict=True)
        )
    )


# --- factors


def test_each_rank_by_its_own_shard():
    """The ordinary function over FSDP's shards."""
    judged = judge(of_fsdp([0.5, 0.25], [4.0, 16.0]))
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where.line, judged.checked) == ("error", (0, 1), 7, 1)
    assert "0.5 on rank 0, 0.25 on rank 1" in finding.found
    assert f"that of the whole {math.sqrt(20):.4g}" in finding.found
    assert "outermost FSDP module" in finding.advice


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([0.5, 0.25], "clips by the norm of its own shards"),
        ([0.5, 0.4], "multiplies its gradients by a number of its own"),
    ],
)
def test_each_rank_by_its_own_norm_or_count(factors, words):
    """By its norm, each comes to one bound; by the tokens that it has, it does not."""
    (finding,) = judge(of_fsdp(factors, [4.0, 16.0], how="backward")).findings
    assert words in finding.cause


@pytest.mark.parametrize(("shape", "expected"), [((2, 8, 8), 0), ((2, 64), 1)])
def test_experts_that_are_divided_by_their_own_tokens(shape, expected):
    """Each rank has whole matrices of a stack, which need no factor in common."""
    ranks = world(
        *(
            [
                mesh([2], ["ep"]),
                optimizer(3, {"experts": msgspec.structs.replace(layout(rank, [2], ["S0"]), shape=shape)}),
                norm(0, [4.0], factor, "backward"),
                norm(1, [4.0], min(1.0, 3 * factor), "backward"),
                stepped(9, 0, ["g"]),
            ]
            for rank, factor in enumerate([0.5, 0.2])
        )
    )
    assert len(judge(ranks).findings) == expected


@pytest.mark.parametrize(
    ("factors", "more"),
    [
        ([0.5, 0.5], {}),
        ([0.5, 0.5002], {}),
        ([1.0, 1.0], {"how": "backward"}),
        ([1.5, 2.0], {"how": "backward"}),
        ([None, 0.25], {}),
    ],
)
def test_no_other_factor(factors, more):
    """The same, but for rounding; or made larger, as by a division by a count; or not by one number."""
    assert judge(of_fsdp(factors, [4.0, 16.0], **more)).findings == ()


@pytest.mark.parametrize(("kind", "expected"), [("float32[64]", 1), ("bfloat16[64]", 0)])
def test_how_far_apart_factors_may_be(kind, expected):
    """Parts of nearly the same norm make factors that are nearly the same; 16 bits do so with one factor."""
    ranks = of_fsdp([0.5, 0.501], [4.0, 4.0])
    for rank in ranks:
        (described,) = rank.of(ev.Optimizer)
        described.parameters[:] = [replace(one, kind=kind) for one in described.parameters]
    assert len(judge(ranks).findings) == expected


def test_nothing_clipped_is_not_checked():
    """A measurement of ours alone says nothing."""
    judged = judge(of_fsdp([1.0, 1.0], [4.0, 16.0], how="backward"))
    assert judged.checked == 0
    assert judged.skipped_because


@pytest.mark.parametrize(
    ("factors", "how", "more", "checked"),
    [
        ([0.5, 0.5, 0.5], "backward", {}, 0),  # an average over two ranks
        ([2.0**-12, 2.0**-11, 2.0**-11], "backward", {}, 0),  # the scale of a loss
        ([0.1, 0.125, 0.11], "backward", {}, 0),  # a number of tokens
        ([0.1, 0.125, 1.0], "all_reduce", {"given": 1.0, "came": 2.0}, 0),  # and the sum of a loss
        ([1.0, 1.0, 1.0], "all_reduce", {"given": 4.0, "came": 8.0}, 0),  # a norm for the log
        ([1.0, 1.0, 1.0], "clip_grad_norm_", {"largest": math.inf}, 0),
        ([1.0, 1.0, 1.0], "clip_grad_norm_", {"largest": 9.0}, 3),
        ([0.5 / n for n in (2.0, 3.0, 4.0)], "backward", {}, 3),  # by each rank's own norm
        ([0.5 / math.sqrt(2) / n for n in (2.0, 3.0, 4.0)], "backward", {}, 3),  # by that of both together
        ([0.5 / 2.0, 0.5 / 3.0, 1.0], "backward", {}, 3),
        ([0.5 / 2.0, 1.0, 1.0], "backward", {}, 0),  # one step is no bound
    ],
)
def test_what_is_a_clip(factors, how, more, checked):
    """Gradients are multiplied for other reasons, too; a clip shows in torch's function or in its bound."""
    each = [
        [optimizer(3, {"flat": SHARD})]
        + [norm(n, [(2.0 + n) ** 2], factor, how, **more) for n, factor in enumerate(factors)]
        + [stepped(9, 0, ["g"])]
        for _ in range(2)
    ]
    judged = judge(world(*each))
    assert (judged.checked, judged.findings) == (checked, ())


@pytest.mark.parametrize("whole", [
    lambda own, given, came: came,  # the squares of all parts
    lambda own, given, came: own - given + came,  # those of what is split, and this rank's others
])  # fmt: skip
@pytest.mark.parametrize(("varies", "checked"), [(True, 3), (False, 0)])
def test_a_clip_by_a_sum_of_squares(whole, varies, checked):
    """What the other ranks have is known by what comes out of the sum."""
    numbers = [(9.0, 4.0, 7.0), (16.0, 9.0, 11.0), (25.0, 1.0, 30.0)]
    each: list[list[Made]] = []
    for _ in range(2):
        records = [optimizer(3, {"flat": SHARD})]
        for n, (own, given, came) in enumerate(numbers):
            factor = 0.3 / math.sqrt(whole(own, given, came)) if varies else 0.3
            records.append(norm(n, [own], factor, "all_reduce", given=given, came=came))
        each.append([*records, stepped(9, 0, ["g"])])
    assert judge(world(*each)).checked == checked


@pytest.mark.parametrize(
    ("scale", "factor", "checked"), [(None, 0.5, 1), (None, None, 0), (8.0, 0.25, 0), (8.0, None, 0)]
)
def test_what_became_of_clipped_gradients(scale, factor, checked):
    """What was clipped is not known to be what was stepped on where gradients have no factor in common."""
    each = [
        [optimizer(3, {"w": None}), norm(0, [4.0], factor, scale=scale, largest=1.0, came=2.0), stepped(9, 0, ["g"])]
        for _ in range(2)
    ]
    assert judge(world(*each)).checked == checked


def test_once_in_a_while_is_no_fault():
    """A rank that has once treated its gradients otherwise may have had a reason."""
    each = [
        [optimizer(3, {"flat": SHARD})]
        + [norm(n, [4.0], 0.5 if rank == 0 or n != 2 else 0.1) for n in range(4)]
        + [stepped(9, 0, ["g"])]
        for rank in range(2)
    ]
    assert judge(world(*each)).findings == ()


def sharded_by_hand(factors: list[float]) -> Any:
    """Shards of DTensors, of which the end of the backward alone was seen."""
    return world(
        *(
            [
                mesh([2], ["shard"]),
                optimizer(3, {"weight": layout(rank, [2], ["S0"])}),
                norm(0, [1 / factor**2], factor, "backward"),  # a bound of 1
                stepped(9, 0, ["g"]),
            ]
            for rank, factor in enumerate(factors)
        )
    )


def test_shards_clipped_by_hand():
    """The line is that of the step: no other one was seen."""
    (finding,) = judge(sharded_by_hand([0.5, 0.25])).findings
    assert finding.where.line == 9
    assert "DTensor parameters themselves" in finding.advice
    assert judge(sharded_by_hand([0.5, 0.5])).findings == ()


def test_replicas_along_a_mesh_are_not_compared_here():
    """That copies differ is found by gradient-sync; workers of a mesh may be models of their own for a while."""
    each = [
        [
            mesh([2], ["replicate"]),
            optimizer(3, {"weight": layout(rank, [2], ["R"])}),
            norm(0, [4.0], factor),
            stepped(9, 0, ["g"]),
        ]
        for rank, factor in enumerate([0.5, 0.25])
    ]
    assert judge(world(*each)).findings == ()


def test_stages_of_a_pipeline():
    """Each by the norm of its own layers."""

    def stages(factors: list[float]) -> Any:
        stage = {"how": "PipelineStage", "site": 2, "stages": 2, "pipeline": (0, 1)}
        return world(
            *(
                [
                    (ev.Parallelised, {**stage, "stage": rank}),
                    optimizer(3, {f"layer{rank}": None}),
                    norm(0, [4.0], factor),
                    stepped(9, 0, ["g"]),
                ]
                for rank, factor in enumerate(factors)
            )
        )

    (finding,) = judge(stages([0.5, 0.25])).findings
    assert "stage of the pipeline" in finding.cause
    assert judge(stages([0.5, 0.5])).findings == ()


@pytest.mark.parametrize(("equal", "joint", "found"), [(True, True, 1), (False, True, 0), (True, False, 0)])
def test_what_ranks_compute_together(equal, joint, found):
    """Without a declaration: an exchange within the backward, and a gradient that is the same on all of them."""
    each = [
        [
            optimizer(3, {"trunk": None, "expert": None}),
            norm(0, [2.0 if equal else 2.0 + rank, 3.0 + rank], factor, "all_reduce", joint=["world"] if joint else []),
            stepped(9, 0, ["g", "h"]),
        ]
        for rank, factor in enumerate([0.5, 0.25])
    ]
    assert len(judge(world(*each)).findings) == found


def test_what_ranks_step_apart():
    """Local SGD: a rank clips by the norm of its own gradients, though they exchange something within the backward."""
    each = [
        [
            optimizer(3, {"trunk": None, "expert": None}, apart=True),
            norm(0, [2.0, 3.0 + rank], factor, "all_reduce", joint=["world"]),
            stepped(9, 0, ["g", "h"]),
        ]
        for rank, factor in enumerate([0.5, 0.25])
    ]
    assert judge(world(*each)).findings == ()


def test_a_clip_by_a_norm_of_whole_and_split_parameters():
    """Copies count once, shards add up, and no sum was seen."""
    squares = [[4.0, 9.0], [16.0, 1.0], [9.0, 25.0]]
    each = [
        [mesh([2], ["tp"]), optimizer(3, {"norm": None, "weight": layout(rank, [2], ["S0"])})]
        + [norm(n, one, 0.3 / math.sqrt(one[0] + 2 * one[1]), "get_total_norm") for n, one in enumerate(squares)]
        + [stepped(9, 0, ["g", "h"])]
        for rank in range(2)
    ]
    assert judge(world(*each)).checked == 3


# --- sums of squares


def summed(squares: list[list[list[float]]], factors: list[float], where: list[ev.Layout | None], **more: Any) -> Any:
    """Two ranks that sum up all their squares before each step; ``squares``: step by step and rank by rank."""
    names = [f"w{place}" for place in range(len(where))]
    each: list[list[Made]] = []
    for rank in range(2):
        records = [optimizer(3, dict(zip(names, where, strict=True)))]
        for number, (of_ranks, factor) in enumerate(zip(squares, factors, strict=True)):
            given, came = sum(of_ranks[rank]), sum(map(sum, of_ranks))
            sums = {"given": given, "came": came, "group": "world", **more}
            records += [norm(number, of_ranks[rank], factor, "all_reduce", **sums), stepped(9, number, names)]
        each.append(records)
    return world(*each)


STEPS = [[[4.0, 1.0], [4.0, 9.0]], [[9.0, 1.0], [9.0, 2.0]], [[1.0, 5.0], [1.0, 7.0]]]
"""The first parameter has the same gradient on both ranks."""
TWICE = [0.3 / math.sqrt(sum(map(sum, step))) for step in STEPS]
"""Factors by a norm that counts all that both ranks have."""
ONCE = [0.3 / math.sqrt(sum(map(sum, step)) - step[0][0]) for step in STEPS]
"""Those by a norm that counts the first parameter once."""


def test_copies_counted_twice():
    """That the sum is what clips shows in the bound, which is the same at every step."""
    (finding,) = judge(summed(STEPS, TWICE, [WHOLE, SHARD])).findings
    assert (finding.severity, finding.subject, finding.count) == ("error", "w0", 3)
    assert f"a norm of {math.sqrt(18):.4g}" in finding.found
    assert f"counted once, it is {math.sqrt(14):.4g}" in finding.found


@pytest.mark.parametrize("factors", [ONCE, [1.0, 1.0, 1.0], [0.1, 0.2, 0.3]])
def test_the_sum_is_not_what_clips(factors):
    """The program takes off what it has counted too often, or does not clip, or by something else."""
    assert judge(summed(STEPS, factors, [WHOLE, SHARD])).findings == ()


def test_everything_counted_twice():
    """Then both bounds are the same at every step; a round one is what the program was given."""
    steps = [[[4.0], [4.0]], [[9.0], [9.0]]]
    wrong = [0.5 / math.sqrt(8), 0.5 / math.sqrt(18)]
    (finding,) = judge(summed(steps, wrong, [WHOLE])).findings
    assert "no sum over ranks is needed" in finding.advice
    right = [0.5 / math.sqrt(4), 0.5 / math.sqrt(9)]
    assert judge(summed(steps, right, [WHOLE])).findings == ()


def test_everything_counted_twice_and_divided():
    """The bound of a mean may have three digits, and two when it is multiplied by the root of the ranks."""
    steps = [[[4.0], [4.0]], [[9.0], [9.0]]]
    right = [0.495 / math.sqrt(4), 0.495 / math.sqrt(9)]  # times the root of two: 0.7000
    assert judge(summed(steps, right, [WHOLE])).findings == ()


def test_shards_are_summed_up():
    """Nothing is counted twice: it is checked, and held."""
    judged = judge(summed(STEPS, TWICE, [SHARD, SHARD]))
    assert judged.findings == ()
    assert judged.checked >= 3


def test_what_the_program_itself_reduces_is_a_copy():
    """As a table of the first and the last stage is."""
    carried = ev.Carried(place=0, of="gradient", inside=False, group="world", number=-1, offset=0, alike=True)
    tied = summed(STEPS, TWICE, [None, None])
    each = [
        [optimizer(3, {"w0": None, "w1": None}), exchanged(0, carried)]
        + [
            norm(n, step[rank], f, "all_reduce", given=sum(step[rank]), came=sum(map(sum, step)), group="world")
            for n, (step, f) in enumerate(zip(STEPS, TWICE, strict=True))
        ]
        + [stepped(9, 0, ["g", "h"])]
        for rank in range(2)
    ]
    assert judge(tied).findings == ()
    (finding,) = judge(world(*each)).findings
    assert (finding.severity, finding.subject) == ("error", "w0")


@pytest.mark.parametrize(("joint", "found"), [(["world"], ["warning"]), ([], [])])
def test_equal_gradients_of_ranks_that_compute_together(joint, found):
    """No ground for an error: that values are equal is none."""
    judged = judge(summed(STEPS, TWICE, [None, None], joint=joint))
    assert [finding.severity for finding in judged.findings] == found


# --- scalers


@pytest.mark.parametrize(
    ("scale", "largest", "found"), [(65536.0, 1.0, 1), (None, 1.0, 0), (65536.0, 65536.0, 0), (1.0, 0.001, 0)]
)
def test_clipped_before_the_scale_was_undone(scale, largest, found):
    """A bound that is multiplied by the scale is right, too, which ddpcheck does not know."""
    scaled = norm(0, [4.0], 1e-6, scale=scale, largest=largest, came=2.0)
    judged = judge(world(*([optimizer(3, {"w": None}), scaled, stepped(9, 0, ["g"])] for _ in range(2))))
    assert len(judged.findings) == found
    assert judged.checked == (found or scale in (None, 1.0))


def test_a_clip_of_another_optimizer():
    """These gradients are divided by the scale, and by nothing else."""
    each = [
        [optimizer(3, {"w": None}), norm(0, [4.0], 2.0**-16, scale=2.0**16, largest=1.0), stepped(9, 0, ["g"])]
        for _ in range(2)
    ]
    assert judge(world(*each)).findings == ()


# --- clips of copies


CLIP = norm(0, [4.0], 0.5, largest=1.0, came=2.0)


@pytest.mark.parametrize(("clips", "compared"), [
    ([CLIP] * 2, 1),
    ([CLIP, norm(0, [9.0], 1 / 3, largest=1.0, came=3.0)], 0),  # before the gradients are reduced
    ([CLIP, norm(0, [4.0], 1.0, "backward")], 0),  # on one rank alone
    ([norm(0, [4.0], None, largest=1.0, came=2.0)] * 2, 0),  # and then more was added
    ([norm(0, [4.0], 0.5, largest=1.0, came=1.0)] * 2, 0),  # by the norm of a part
    ([norm(0, [4.0], 0.5, largest=1.0)] * 2, 0),  # by a norm that was not seen
])  # fmt: skip
def test_a_clip_is_compared_where_all_ranks_made_the_same(clips, compared):
    """Of another one it is not known whether its norm was that of the gradient stepped on."""
    judged = judge(world(*([optimizer(3, {"w": None}), clip, stepped(9, 0, ["g"])] for clip in clips)))
    assert (judged.checked, judged.findings) == (compared, ())
    assert bool(judged.skipped_because) == (not compared)


@pytest.mark.parametrize(("came", "compared"), [([4.5, 4.5], 1), ([2.0, 4.0], 0), ([4.5, None], 0)])
def test_shards_are_compared_where_all_ranks_had_one_norm(came, compared):
    """Each rank's own norm, below the bound, leaves all factors at one."""
    each = zip(came, [4.0, 16.0], strict=True)
    given = (
        [optimizer(3, {"flat": SHARD}), norm(0, [s], 1.0, largest=9.0, came=c), stepped(9, 0, ["g"])] for c, s in each
    )
    assert judge(world(*given)).checked == compared
