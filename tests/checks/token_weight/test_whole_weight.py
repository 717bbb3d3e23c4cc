"""What the tokens of a step count together, and in which parameters: off by the size of a group, or as it should be."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.run import judge
from tests.judging.written import call, world

LOCAL = {0: [1.0, 2.0, 0.5, -1.0, 3.0, 0.1], 1: [0.3, -2.0, 1.5, 1.0, 0.2, 2.1], 2: [2.0, 0.1, 0.7, -3.0, 1.0, 1.1],
         3: [-1.0, 0.9, 2.5, 0.4, 1.7, -0.6]}  # fmt: skip
TOKENS = {0: 4, 1: 6, 2: 3, 3: 7}
ALL = sum(TOKENS.values())


def loss(rank, window, scale, value=None, tokens=None, **more):
    """The tokens of a rank, whose losses are divided by those of all ranks, and multiplied by something."""
    elements = tokens or TOKENS[rank]
    term = ev.Term(by="Mul", elements=elements, weight=scale / ALL, kind="elements")
    one = ev.Weighed(site=20, terms=[term], value=rank + 10.0 * window if value is None else value)
    fields = {"optimizer": 0, "number": window, "backwards": [one], "window": window, **more}
    return ev.StepWeights, fields


def sums(path, numbers, over=(), divisor=0.0):
    return ev.Sums(model=0, path=path, kind="float32[6]", numbers=numbers, over=list(over), divisor=divisor)


def gradients(rank, window, **parameters):
    """By parameter the ranks that its gradient is added up over, and what the sum is multiplied by."""
    left = [sums(path, LOCAL[rank]) for path in parameters]
    stepped = [
        sums(path, [factor * sum(LOCAL[r][i] for r in over) for i in range(6)])
        for path, (over, factor) in parameters.items()
    ]
    return [
        (ev.GradientSums, {"window": window, "optimizer": None, "each": left}),
        (ev.GradientSums, {"window": window, "optimizer": 0, "each": stepped}),
    ]


def judged(make, windows=2, ranks=4):
    """Ranks with such windows; ``make`` gives the records of one."""
    model = (ev.Model, {"model": 0, "kind": "Net", "site": 9, "held": []})
    return judge(world(*[[model, *[r for w in range(windows) for r in make(rank, w)]] for rank in range(ranks)]))


def of_program(scale, factor, groups=("world",), **more):
    """The program reduces over all ranks itself."""

    def make(rank, window):
        calls = [call(1, 30, op="all_reduce", group=group) for group in groups]
        return [*gradients(rank, window, w=((0, 1, 2, 3), factor)), *calls, loss(rank, window, scale, **more)]

    return make


def test_a_mean_over_all_tokens():
    """Summed over the ranks, or averaged and multiplied: the same."""
    assert judged(of_program(1, 1)).findings == ()
    right = judged(of_program(4, 1 / 4))
    assert (right.checked, right.findings) == (2, ())


@pytest.mark.parametrize(
    ("scale", "factor", "found"), [(4, 1 / 2, "2 times that"), (2, 1 / 4, "1/2 of that"), (1, 1 / 4, "1/4 of that")]
)
def test_a_factor_that_is_the_size_of_a_group(scale, factor, found):
    """It may be meant: a warning, with the group's name."""
    (one,) = judged(of_program(scale, factor, groups=("world", "0,1#1"))).findings
    assert (one.severity, one.where.line, one.count) == ("warning", 20, 2)
    assert one.found.startswith(found)
    assert "the size of the group of ranks 0, 1" in one.cause or "the world size" in one.cause


def test_other_factors_are_anybodys():
    assert judged(of_program(4, 0.7)).findings == ()
    assert judged(of_program(12, 1 / 4)).findings == ()


def test_one_step_is_not_enough():
    assert judged(of_program(4, 1 / 2), windows=1).findings == ()


def test_equally_many_tokens_show_nothing():
    """Whether a loss is divided by those of all ranks cannot be told."""
    assert judged(of_program(4, 1 / 2, tokens=5)).findings == ()


def test_ranks_that_share_a_batch_are_not_added_up():
    """Their losses have the same values."""
    assert judged(of_program(4, 1 / 2, value=1.5)).findings == ()


def test_what_is_declared_needs_no_calls():
    """FSDP has reduced when backward() ends: what is left is stepped on as it is."""

    def make(scale):
        def records(rank, window):
            each = [sums("w", LOCAL[rank], over=range(4), divisor=4)]
            looks = [(ev.GradientSums, {"window": window, "optimizer": o, "each": each}) for o in (None, 0)]
            return [*looks, loss(rank, window, scale)]

        return records

    assert judged(make(4)).findings == ()
    (one,) = judged(make(8)).findings
    assert one.found.startswith("2 times that")


# --- experts


def experts(factor, exchange=True):
    def make(rank, window):
        pair = (0, 2) if rank in (0, 2) else (1, 3)
        calls = [
            call(1, 30, op="all_reduce"),
            call(1, 31, op="all_reduce", group=f"{pair[0]},{pair[1]}#1"),
        ]
        if exchange:
            calls.append(call(1, 32, op="all_to_all_single", group="0,1#1" if rank < 2 else "2,3#1"))
        each = gradients(rank, window, dense=((0, 1, 2, 3), 1 / 4), expert=(pair, factor))
        return [*each, *calls, loss(rank, window, 4)]

    return make


def test_experts_are_divided_by_all_ranks_whose_tokens_they_see():
    assert judged(experts(1 / 4)).findings == ()


@pytest.mark.parametrize(("factor", "found"), [(1 / 2, "2 times that"), (1 / 8, "1/2 of that")])
def test_experts_that_are_divided_by_other_numbers(factor, found):
    (one,) = judged(experts(factor)).findings
    assert (one.severity, one.subject, one.ranks) == ("warning", "expert", (0, 1, 2, 3))
    assert one.found.startswith(found)


def test_a_part_of_some_ranks_alone():
    """It sees their tokens, and is averaged over them."""
    assert judged(experts(1 / 2, exchange=False)).findings == ()


# --- stages


def stages(scale):
    """The second rank has the loss; the first goes on with gradients that it was sent."""
    stage = {"how": "PipelineStage", "site": 5, "stages": 2}

    def make(rank, window):
        parallel = (ev.Parallelised, {**stage, "stage": rank})
        passed = ev.Weighed(site=20, continued=True)
        nothing = {"optimizer": 0, "number": window, "backwards": [passed], "window": window}
        if rank == 0:
            return [parallel, (ev.StepWeights, nothing)]
        tokens = 5 + window
        term = ev.Term(by="NllLoss", elements=tokens, weight=1.0 if scale else 1 / tokens, kind="sum")
        one = ev.Weighed(site=20, terms=[term], value=1.0 + window)
        return [parallel, (ev.StepWeights, {**nothing, "backwards": [one]})]

    return make


def test_a_sum_that_a_stage_goes_back_from():
    (one,) = judged(stages(True), ranks=2).findings
    assert (one.severity, one.ranks, one.where.line) == ("warning", (1,), 20)
    assert judged(stages(False), ranks=2).findings == ()
