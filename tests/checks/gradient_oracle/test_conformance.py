"""What is said of updates that are not those of one process: the factor, the mistake, or that it is neither."""

from __future__ import annotations

import math

import pytest

from ddpcheck.checks.gradient_oracle import conformance as updates
from ddpcheck.evidence.oracle_comparison import OTHER_DTYPE, Comparison, Likeness
from tests.judging.trained import ASKEW, RIGHT, compared, micro, only, situation, step, trace, trained


def times(ratio: float) -> Likeness:
    """The same direction, so many times as long."""
    return Likeness(ratio=ratio, cosine=math.copysign(1.0, ratio))


def of(*steps, where="plain", ranks=2):
    """A training whose steps compare so; the ranks took as many micro-batches as they should."""
    asked = situation(where)
    number = asked.micro_batches(ranks)[0] * asked.epochs
    return trained(asked, *[windows(*[asked.accumulation] * (number // asked.accumulation))] * ranks, compared=steps)


def cause_of(*steps, where="plain", ranks=2):
    finding = only(updates.judge(of(*steps, where=where, ranks=ranks)).findings)
    return finding.cause, finding.advice


# --- whether


def test_right_steps_hold():
    judged = updates.judge(of(compared(worst=1e-10), compared(number=1, worst=0.0)))
    assert (judged.checked, judged.findings) == (2, ())


def test_a_difference_beyond_rounding_is_told_with_its_place():
    finding = only(updates.judge(of(compared(worst=0.0), compared(times(2), 1, worst=0.5))).findings)
    assert finding.subject == "last.weight at step 1"
    assert (finding.step, finding.count, finding.ranks) == (1, 1, (0, 1))
    assert "1e-09 for rounding, as measured" in finding.expected
    assert "at 1 of 2 steps, from step 1 on" in finding.found
    assert "at [0, 1] 0.5 instead of 0" in finding.found


def test_no_number_is_a_difference():
    finding = only(
        updates.judge(of(compared(worst=math.nan, gradient=Likeness(ratio=math.nan, cosine=math.nan)))).findings
    )
    assert "nan instead of 0" in finding.found


@pytest.mark.parametrize(("ranks", "wrong"), [(1, True), (2, True), (3, False), (4, True)])
def test_where_nothing_is_rounded_every_bit_counts(ranks, wrong):
    judged = updates.judge(of(compared(worst=1e-16, allowed=1e-9), where="exact", ranks=ranks))
    assert bool(judged.findings) == wrong
    if wrong:
        assert "not a bit, since nothing is rounded here" in only(judged.findings).expected


@pytest.mark.parametrize(
    ("comparison", "reason"),
    [(None, "came to no end"), (Comparison(trouble="no optimizer step was seen"), "no optimizer step was seen")],
)
def test_nothing_to_compare_is_no_verdict(comparison, reason):
    one = of()
    one.comparison = comparison
    judged = updates.judge(one)
    assert judged.checked == 0
    assert reason in judged.skipped_because


@pytest.mark.parametrize(("where", "wrong"), [("plain", True), ("float32", True), ("bfloat16", False)])
def test_a_model_that_was_cast_is_told_where_nothing_asked_for_it(where, wrong):
    """Nothing of it can be compared, which is no reason to pass it over."""
    one = of(where=where)
    one.comparison = Comparison(trouble=OTHER_DTYPE)
    judged = updates.judge(one)
    assert bool(judged.findings) == wrong == bool(judged.checked)
    if wrong:
        assert "another dtype" in only(judged.findings).found


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        (RIGHT, "the gradient as expected"),
        (times(2), "the gradient 2 times the expected one"),
        (Likeness(ratio=0.0, cosine=0.0), "the gradient zero, or across the expected one"),
        (Likeness(ratio=0.5, cosine=0.5), "the gradient 60° off the expected direction"),
    ],
)
def test_how_the_gradient_lies(gradient, said):
    assert said in only(updates.judge(of(compared(gradient))).findings).found


# --- by which factor


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("the world size", lambda w: w),
        ("one over the world size", lambda w: 1 / w),
        ("the world size squared", lambda w: w * w),
        ("one over the world size squared", lambda w: 1 / w**2),
        ("the accumulation steps", lambda w: 5),
        ("one over the accumulation steps", lambda w: 1 / 5),
        ("world size times accumulation steps", lambda w: 5 * w),
        ("one over world size times accumulation steps", lambda w: 1 / (5 * w)),
        ("the direction", lambda w: -1),
        ("the batch size", lambda w: 6),
        ("one over the batch size", lambda w: 1 / 6),
        ("a constant", lambda w: 7.3),
    ],
)
def test_every_factor_has_its_name(name, value, ranks):
    one = compared(times(value(ranks)), micros=(5,) * ranks)
    assert updates.factor(of(one, where="accumulation", ranks=ranks), one) == (name, pytest.approx(value(ranks)))
    cause, _ = cause_of(one, where="accumulation", ranks=ranks)
    assert "by its sign" in cause if name == "the direction" else name in cause


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_factor_of_a_norm_over_ranks(ranks):
    cause, advice = cause_of(compared(times(ranks**-0.5)), where="clipping", ranks=ranks)
    assert "one over the square root of the world size" in cause
    assert "add no squares up over the ranks" in advice


def test_a_norm_that_nobody_takes_gives_no_factor():
    one = compared(times(2**-0.5))
    assert updates.factor(of(one), one) == ("a constant", pytest.approx(2**-0.5))


def test_a_window_that_is_not_full_has_a_factor_of_its_own():
    one = compared(times(2 / 5), micros=(2, 2))
    cause, advice = cause_of(one, where="accumulation-tail")
    assert "0.4: the micro-batches of the window over those of a full one" in cause
    assert "a last window" in advice


@pytest.mark.parametrize("gradient", [RIGHT, ASKEW])
def test_what_is_no_factor_has_no_name(gradient):
    one = compared(gradient)
    assert updates.factor(of(one), one) is None


def test_one_rank_and_one_micro_batch_have_no_factors():
    one = compared(times(1 / 3))
    assert updates.factor(of(one, ranks=1), one) == ("a constant", pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1.0, "; the loss went into backward as job.loss returned it"),
        (2.0, "; the loss was multiplied by 2"),
        (None, ""),
    ],
)
def test_what_became_of_the_loss_is_told(factor, said):
    cause, advice = cause_of(compared(times(2), factor=factor))
    assert cause == "the gradient is off by the factor 2: the world size" + (
        f"{said} before backward on rank 0" if factor == 2 else said
    )
    assert "divide the loss by the accumulation steps, and by nothing else" in advice


def test_pairs_have_a_mend_of_their_own():
    _, advice = cause_of(compared(times(2)), where="pairs")
    assert "of what was gathered" in advice


def test_a_constant_has_to_be_one():
    cause, _ = cause_of(compared(times(7.0)), compared(times(7.01), 1))
    assert "a constant" in cause
    cause, _ = cause_of(compared(times(7.0)), compared(times(9.0), 1))
    assert "points elsewhere" in cause


def test_windows_of_several_lengths_that_were_added_up():
    cause, advice = cause_of(
        compared(times(5), micros=(5, 5)), compared(times(2), 1, micros=(2, 2)), where="accumulation-tail"
    )
    assert "(2, 5): they were added up" in cause
    assert "divide the loss by the number of them" in advice


# --- or by which mistake


@pytest.mark.parametrize(
    ("mistake", "where", "said"),
    [
        ("unclipped", "clipping", "not clipped at the step"),
        ("own", "plain", "not reduced over the ranks"),
        ("last", "accumulation", "that of the last micro-batch alone"),
        ("apart", "pairs", "each rank has held its samples against its own alone"),
        (
            "ranks",
            "tokens",
            "the mean of the ranks' own means, which are of unequal numbers of tokens (6, 6 on the ranks)",
        ),
        ("means", "tokens", "the mean of the means of the micro-batches"),
        ("means", "accumulation", "of unequal numbers of samples"),
    ],
)
def test_a_mistake_is_known_by_the_gradient_that_it_makes(mistake, where, said):
    cause, _ = cause_of(compared(ASKEW, others={mistake: RIGHT, "other": ASKEW}), where=where)
    assert said in cause


def test_one_rank_has_nothing_to_reduce():
    cause, _ = cause_of(compared(ASKEW, others={"own": RIGHT}), ranks=1)
    assert "points elsewhere" in cause


def test_a_right_gradient_leaves_the_optimizer():
    cause, advice = cause_of(compared(RIGHT))
    assert "what the optimizer made of it was not" in cause
    assert "learning rate" in advice


def test_another_norm():
    cause, _ = cause_of(compared(times(7.0)), compared(times(9.0), 1), where="clipping")
    assert "clipped by another norm than its own (2 after it, 1 expected)" in cause


def test_clipped_in_pieces():
    cause, _ = cause_of(compared(ASKEW), where="clipping")
    assert "clipped in pieces" in cause


def test_neither():
    cause, advice = cause_of(compared(ASKEW, others={"means": ASKEW}))
    assert "points elsewhere" in cause
    assert "plain loop" in advice


# --- how many micro-batches a step has


def windows(*lengths, rest=0, returns="last"):
    recorded = []
    for number, length in enumerate(lengths):
        recorded += [micro([0]) for _ in range(length)] + [step(float(number))]
    return trace(*recorded, *[micro([0]) for _ in range(rest)], returns=returns)


def judged_windows(one, where="accumulation"):
    return updates.judge(trained(where, *[one] * 2, compared=[compared(worst=0.0)])).findings


@pytest.mark.parametrize(
    ("lengths", "wrong"),
    [
        ((5, 5, 5, 5), False),
        ((5, 4, 5, 4), False),
        ((1,) * 20, True),
        ((5, 6, 5, 5), True),
        ((5, 5, 0, 5, 5), True),
    ],
)
def test_steps_take_as_many_micro_batches_as_asked_for(lengths, wrong):
    one = trained("accumulation", *[windows(*lengths)] * 2, compared=[compared(worst=0.0)])
    judged = updates.judge(one)
    assert bool(judged.findings) == wrong
    if wrong:
        assert "as job.accumulation says" in only(judged.findings).expected


def test_what_no_step_has_taken_is_told():
    one = trained(
        situation("accumulation"),
        windows(5, 5, 5, 5, rest=2),
        windows(5, 5, 5, 5, rest=2),
        compared=[compared(worst=0.0)],
    )
    finding = only(updates.judge(one).findings)
    assert "2 micro-batches on rank 0 after the last step" in finding.found
    assert finding.ranks == (0, 1)


def test_a_step_that_nothing_went_into_may_be_one_in_evaluation_mode():
    finding = only(judged_windows(windows(5, 5, 0, 5, 5)))
    assert finding.expected.endswith("and none without")
    assert "evaluation mode" in finding.cause


@pytest.mark.parametrize(("lengths", "found"), [((5, 5), "10 micro-batches"), ((5,), "5 micro-batches")])
def test_a_training_that_ends_before_its_time_is_told(lengths, found):
    finding = only(judged_windows(windows(*lengths)))
    assert finding.expected == "2 epochs of 10 batches on every rank"
    assert finding.found.startswith(found)


def test_parameters_that_something_else_has_changed_are_told():
    one = trace(*[fact for n in range(9) for fact in (micro([n]), step(float(n) + (0.5 if n > 3 else 0.0), n + 1.0))])
    finding = only(judged_windows(one, "plain"))
    assert finding.subject == "first.weight, last.weight"
    assert finding.found.startswith("2 parameters changed between steps 3 and 4 on rank 0")


@pytest.mark.parametrize(("returns", "wrong"), [("last", False), (9.0, False), (4.0, False), (0.0, True), (2.5, True)])
def test_what_is_returned_is_what_some_step_has_left(returns, wrong):
    """The best epoch may be loaded at the end; the start, or an average, may not."""
    one = windows(*[1] * 9, returns=returns)
    found = judged_windows(one, "plain")
    assert bool(found) == wrong
    if wrong:
        assert only(found).found.startswith("2 parameters changed after the last step on rank 0")


def test_a_right_gradient_is_no_mean_of_means():
    """Where all ranks have as many samples, the mistake makes the right gradient, and is not to blame."""
    right = Likeness(ratio=1.0, cosine=1.0)
    cause, _ = cause_of(compared(right, worst=0.5, others={"ranks": right, "means": right}))
    assert cause == "the gradient was right: what the optimizer made of it was not"


def test_a_training_of_which_nothing_can_be_compared_is_told():
    """Steps without any training forward: the model was in evaluation mode all along, say."""
    one = trained("plain", *[trace(*[step(float(n)) for n in range(9)])] * 2, compared=())
    judged = updates.judge(one)
    assert only(judged.findings).expected.endswith("and none without")
    assert judged.checked == 1
