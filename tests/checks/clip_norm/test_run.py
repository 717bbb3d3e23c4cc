"""The rows of clip-norm: the finding for each wrong clipping norm."""

from __future__ import annotations

import math

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.run import ROWS, judge
from ddpcheck.relations.norm import CANDIDATES
from tests.facts.clips import clipped, copies, norm, of_all, of_each, shard, slices, stage
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world


def meshed(_):
    return [mesh([2], ["tp"])]


def only(found):
    (finding,) = judge(found).findings
    return finding


def test_every_norm_has_a_row():
    """So that none is found and not said."""
    known = [candidate for row in ROWS for candidate in row.candidates]
    assert sorted(known) == sorted([*CANDIDATES, "part", "none", "all copies", "scaled", "unreduced"])


@pytest.mark.parametrize(
    ("where", "before", "cause", "advice"),
    [
        (shard, lambda _: [], "it knows nothing of FSDP's", "outermost FSDP module"),
        (slices, meshed, "which nothing sums up over the ranks", "with the DTensor parameters themselves"),
        (None, stage, "each stage of the pipeline", "over the stages"),
    ],
)
def test_each_rank_by_its_own_norm(where, before, cause, advice):
    """The cause follows from what declares the parts."""
    squares = [[[4.0], [16.0]], [[9.0], [1.0]], [[25.0], [36.0]]]
    judged = judge(clipped([where], of_each, "torch", squares, before=before))
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where.line, judged.checked) == ("error", (0, 1), 7, 3)
    assert "0.25 on rank 0, 0.125 on rank 1" in finding.found
    assert f"that of the whole {math.sqrt(20):.4g}" in finding.found
    assert cause in finding.cause
    assert advice in finding.advice
    assert finding.count == 3


def test_ranks_that_compute_together():
    """Nothing declares their parts."""
    finding = only(clipped([None, None], of_each, "torch", joint=["world"]))
    assert finding.cause.startswith("each rank clips by a norm of its own, though they compute one model together")


def test_a_number_of_each_rank():
    for how in ("backward", "all_reduce"):  # what was reduced may be anything, such as a flag
        each = [[optimizer(3, {"w": shard(rank)}), norm(0, [4.0], 0.5 - 0.1 * rank, how)] for rank in range(2)]
        finding = only(world(*each))
        assert "multiplies its gradients by a number of its own" in finding.cause
        assert finding.where.line == 9


def test_a_sum_over_a_part_of_the_ranks():
    squares = [[[7.0 + turn, own + turn * own] for own in (1.0, 2.0, 5.0, 3.0)] for turn in range(4)]

    def of_pair(of_ranks):
        experts = [of_ranks[0][1] + of_ranks[1][1], of_ranks[2][1] + of_ranks[3][1]]
        return [math.sqrt(of_ranks[rank][0] + experts[rank // 2]) for rank in range(4)]

    group = {"group": lambda _, rank: "0,1#1" if rank < 2 else "2,3#1"}
    finding = only(clipped([None, None], of_pair, squares=squares, joint=["world"], **group))
    assert "summed up over ranks 0 and 1 alone" in finding.cause
    assert "over all of ranks 0-3" in finding.advice


def test_copies_counted_twice():
    finding = only(clipped([copies, slices], of_all, before=meshed))
    assert (finding.severity, finding.subject, finding.count) == ("error", "w0", 4)
    assert finding.found == (
        f"a norm of {math.sqrt(18):.4g}, in which w0 is counted 2 times; counted once, it is {math.sqrt(14):.4g}"
    )


def test_equal_gradients_counted_twice():
    """That values are equal is no ground for an error."""
    finding = only(clipped([None, slices], of_all, before=meshed))
    assert (finding.severity, finding.subject) == ("warning", "w0")


SAME = [[[4.0], [4.0]], [[9.0], [9.0]], [[1.0], [1.0]]]


def test_everything_counted_twice():
    finding = only(clipped([copies], of_all, "torch", SAME))
    assert (finding.rule, finding.severity) == ("copies-counted-repeatedly", "error")
    assert "all parameters are counted 2 times" in finding.found
    assert "no sum over ranks is needed" in finding.advice


def test_a_sum_over_copies_by_which_it_may_have_clipped():
    """The window does not count as compared."""
    sums = {"came": lambda squares, _: 2 * squares[0][0]}
    judged = judge(clipped([copies], of_all, squares=SAME, **sums))
    assert [one.rule for one in judged.findings] == ["all-gradients-counted-repeatedly"]
    assert "2 ranks hold alike" in judged.findings[0].found
    assert (judged.checked, bool(judged.skipped_because)) == (0, True)


def second_sum(where):
    """Four ranks that sum up all squares along the first dimension of a mesh, and what came of it along the second."""
    copied, cut = ([4.0, 9.0, 1.0], [3.0, 5.0, 7.0]), ([1.0, 2.0, 4.0], [6.0, 3.0, 2.0])
    each = []
    for rank in range(4):
        first, second = rank // 2, rank % 2
        records = [mesh((2, 2), ("dp", "tp")), optimizer(3, {f"w{n}": one(rank) for n, one in enumerate(where)})]
        for number in range(3):
            of = [[copied[dp][number], cut[dp][number] + tp] for dp in range(2) for tp in range(2)]
            factor = 0.3 / math.sqrt(sum(map(sum, of)))
            along = (f"{second},{second + 2}#1", 6), (f"{2 * first},{2 * first + 1}#1", 7)
            records += [norm(number, of[rank], factor, "all_reduce", group=group, site=site) for group, site in along]
            records.append(stepped(9, number, ["g", "h"]))
        each.append(records)
    return world(*each)


def on_mesh(*placements):
    return lambda rank: layout(rank, (2, 2), placements)


@pytest.mark.parametrize(("where", "severity"), [(on_mesh("S0", "R"), "error"), (lambda _: None, "warning")])
def test_copies_along_the_second_of_two_sums(where, severity):
    """The finding is at the line that counts them."""
    finding = only(second_sum([where, on_mesh("S0", "S0")]))
    assert (finding.severity, finding.subject, finding.ranks, finding.where.line) == (severity, "w0", (0, 1, 2, 3), 7)
    assert judge(second_sum([on_mesh("S0", "S0")] * 2)).findings == ()


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (lambda squares: [max(of_each(squares))] * 2, "the largest norm that a rank has"),
        (lambda squares: [sum(of_each(squares))] * 2, "the sum of the norms"),
        (lambda squares: [sum(of_each(squares)) / 2] * 2, "the mean of the norms"),
        (lambda squares: [of_all(squares)[0] / math.sqrt(2)] * 2, "the root of the mean of the squares"),
    ],
)
def test_norms_that_are_combined_wrongly(by, words):
    finding = only(clipped([slices, slices], by, "torch", before=meshed))
    assert (finding.rule, finding.severity) == ("wrong-norm", "error")
    assert words in finding.found
    assert f"that of the whole is {math.sqrt(18):.4g}" in finding.found


def test_clipped_before_the_scale_was_undone():
    records = [optimizer(3, {"w": None}), norm(0, [4.0], 0.5 / 65536, scale=65536.0, largest=1.0, came=2.0)]
    judged = judge(world(*[[*records, stepped(9, 0, ["g"])]] * 2))
    assert (judged.findings[0].rule, judged.checked) == ("clip-before-unscale", 1)
    assert "still multiplied by 65536, which is clipped to 1" in judged.findings[0].found


def test_clipped_before_the_reduction():
    """It may be meant, and is not what the sentence says."""
    each = [
        [optimizer(3, {"w": None}), norm(0, [s], None, largest=1.0, came=math.sqrt(s)), stepped(9, 0, ["g"])]
        for s in (4.0, 9.0)
    ]
    finding = only(world(*each))
    assert (finding.rule, finding.severity) == ("clip-before-reduction", "warning")
    assert "by the norm of its own gradient: 2, 3" in finding.found


def test_two_optimizers_of_one_norm():
    """What is wrong with one alone is right with both; a window is named once."""
    each = []
    for rank in range(2):
        records = [mesh([2], ["tp"]), *(optimizer(3, {f"w{n}": slices(rank)}, optimizer=n) for n in range(2))]
        for number, (one, other) in enumerate([(4.0, 1.0), (9.0, 2.0), (1.0, 5.0)]):
            whole = math.sqrt(2 * (one + other))
            records += [
                norm(number, [square], 0.5 / whole, largest=0.5, came=whole, optimizer=n)
                for n, square in enumerate((one, other))
            ]
            records += [stepped(9, number, ["g"], optimizer=n) for n in range(2)]
        each.append(records)
    judged = judge(world(*each))
    assert (judged.findings, judged.checked, judged.of) == ((), 6, 6)


def test_nothing_clipped_is_not_checked():
    """A measurement of ours alone says nothing."""
    judged = judge(clipped([slices], of_all, "torch", SAME, bound=math.inf, before=meshed))
    assert judged.checked == 0
    assert judged.skipped_because


def test_numbers_read_of_a_part():
    """Beside the rows of norms."""
    of = world(
        *([(ev.PartRead, {"site": 7, "number": 0, "what": "norm", "value": v, "ranks": (0, 1)})] for v in (1.0, 3.0))
    )
    assert [one.rule for one in judge(of).findings] == ["partial-value-read"]
