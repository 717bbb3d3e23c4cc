"""What is said of trainings that go on after a kill."""

from __future__ import annotations

import pytest

from ddpcheck.checks.checkpoint_atomic_save import conformance as saves
from ddpcheck.checks.resume_equivalence import conformance as resumes
from ddpcheck.evidence import training_record
from tests.judging.resumed_trainings import KILLED, NUMBERS, WHERE, WHOLE, resumed, saved, training
from tests.judging.trained import compared, hung, only, raised, situation, trace, trained
from tests.judging.trained import killed as killed_rank


def finding_of(*traces, **more):
    return only(resumes.judge_resume(WHOLE, KILLED, resumed(*traces, **more)).findings)


def test_going_on_where_it_was_holds():
    judged = resumes.judge_resume(WHOLE, KILLED, resumed(training(0, 2), training(1, 2)))
    assert (judged.checked, judged.findings) == (2, ())


def test_what_rounding_may_do_is_none_of_it():
    judged = resumes.judge_resume(WHOLE, KILLED, resumed(training(0, 2, shift=1e-10), training(1, 2, shift=1e-10)))
    assert not judged.findings


@pytest.mark.parametrize(
    ("ended", "traces", "reason"),
    [
        (None, (training(0), training(1)), "came to its end before the kill"),
        (
            [raised(0, "x"), hung(1)],
            (trace(returns=None), trace(returns=None)),
            "ended otherwise than by the kill: it broke",
        ),
    ],
)
def test_without_a_kill_there_is_no_verdict(ended, traces, reason):
    one = trained(WHERE, *traces, ended=ended, headline="it broke")
    judged = resumes.judge_resume(WHOLE, one, resumed(training(0, 2), training(1, 2)))
    assert judged.checked == 0
    assert reason in judged.skipped_because


@pytest.mark.parametrize("judge", [resumes.judge_resume, saves.judge_save])
def test_a_training_that_fails_without_a_kill_is_told(judge):
    """Where it never came to its end, a kill says nothing; the failure is not passed over."""
    whole = trained(situation("long"), trace(), trace(), ended=[raised(0, "no"), raised(1, "no")], headline="it failed")
    judged = judge(whole, KILLED, resumed(trace(), trace()))
    assert only(judged.findings).check == "rank-failure"
    assert judged.checked


def test_a_load_that_fails():
    found = finding_of(
        trace(), trace(), ended=[raised(0, "x"), raised(1, "x")], headline="rank 1 failed", text="KeyError", root=1
    )
    assert found.found == "it failed: rank 1 failed\nKeyError"
    assert found.ranks == (1,)
    assert "See from the traceback" in found.advice


def test_a_load_that_hangs():
    found = finding_of(trace(), trace(), ended=[hung(0), hung(1)], headline="timed out")
    assert found.found.startswith("it hung: timed out")
    assert "See from the stacks" in found.advice


def test_a_load_of_what_is_more_than_weights():
    broken = {"ended": [raised(0, "x"), raised(1, "x")], "headline": "rank 0 failed", "root": 0}
    text = "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded"
    assert "weights_only=False" in finding_of(trace(), trace(), text=text, **broken).advice
    assert "weights_only=False" in only(saved(trace(), trace(), text=text, **broken).findings).advice


def test_no_further_step():
    """The step of the checkpoint is known by the kill: two of the three steps before it had been saved."""
    found = finding_of(training(0, 2), trace())
    assert found.found == "no further step was made on rank 1"
    assert found.expected.endswith("as if it had never been interrupted: 2 further steps from step 2 on")
    assert "all batches of epoch 0 had been taken" in found.cause
    assert "begin the next one" in found.advice


def test_no_further_step_in_the_middle_of_an_epoch():
    where = situation("long", epochs=1)
    whole, killed_then = (trained(where, *one.traces, ended=one.record.endings) for one in (WHOLE, KILLED))
    found = only(resumes.judge_resume(whole, killed_then, resumed(trace(), trace())).findings)
    assert found.found == "no further step was made on ranks 0 and 1"
    assert not found.cause
    assert "the number of batches that were taken" in found.advice


def test_beginning_again():
    found = finding_of(training(0), training(1))
    assert "began again with parameters from before the first step" in found.found


def test_parameters_of_no_step():
    found = finding_of(training(0, 2, shift=0.5), training(1, 2, shift=0.5))
    assert "parameters that the uninterrupted training never had" in found.found
    assert found.cause == "no parameter was loaded, or all were changed afterwards"


def test_a_parameter_that_is_left_out_is_named():
    def half(rank):
        from msgspec.structs import replace

        one = training(rank, 2)
        first = one.windows[0].step
        changed = replace(first, before=[first.before[0], first.before[1][::-1]])
        return trace(*[changed if fact is first else fact for fact in one.facts[1:-1]])

    assert finding_of(half(0), half(1)).cause == "last.weight not loaded"


@pytest.mark.parametrize(
    ("samples", "cause"),
    [
        (lambda n: NUMBERS[0][n - 2], "in the order of epoch 0: these are the samples of step 0"),
        (lambda n: NUMBERS[0][3], "too much of the epoch was passed over: these are the samples of step 3"),
        (lambda n: [0, 7], ""),
    ],
)
def test_other_samples(samples, cause):
    found = finding_of(training(0, 2, samples=samples), training(1, 2))
    assert cause in found.cause
    assert bool(cause) == bool(found.cause)
    assert found.ranks == (0,)
    assert "instead of 4, 5" in found.found
    assert "from step 2 on, with the same samples" in found.expected


def test_samples_that_come_again():
    found = finding_of(training(0, 3, samples=lambda n: NUMBERS[0][2]), training(1, 3))
    assert "too little of the epoch was passed over: these are the samples of step 2" in found.cause


def test_other_ranks_are_told_along():
    found = finding_of(training(0, 2, rate=0.5), training(1, 2, rate=0.5))
    assert found.found == "at step 2 on rank 0 the learning rate 0.5 instead of 0.08; the same holds for rank 1"
    assert found.ranks == (0, 1)
    assert "scheduler" in found.advice


@pytest.mark.parametrize(
    ("evaluated", "cause"), [(False, "the evaluation that was due before this step was left out"), (True, "")]
)
def test_a_plateau_that_was_not_gone_on_with(evaluated, cause):
    """The evaluation after the step of the checkpoint is due when it is gone on with."""

    def with_evaluation(one, after):
        steps = [place for place, fact in enumerate(one.facts) if isinstance(fact, training_record.Step)]
        place = steps[after - 1] + 1 if after else 1
        return trace(*one.facts[1:place], training_record.Scheduled(value=1.0), *one.facts[place:-1])

    whole = trained(
        WHERE, *(with_evaluation(one, 2) for one in WHOLE.traces), compared=[compared(number=n) for n in range(4)]
    )
    later = [training(rank, 2, rate=0.5) for rank in (0, 1)]
    if evaluated:
        later = [with_evaluation(one, 0) for one in later]
    found = only(resumes.judge_resume(whole, KILLED, resumed(*later)).findings)
    assert found.found.startswith("at step 2 on rank 0 the learning rate 0.5 instead of 0.08")
    assert found.cause == cause
    assert ("evaluate it first" if cause else "Save and load the scheduler's state") in found.advice


def test_the_random_states_of_another_rank():
    found = finding_of(
        training(0, 2), training(1, 2, draws=lambda n: [n + 0.25, n + 0.5], masks=lambda n: [bytes([0, n])])
    )
    assert found.cause == "rank 1 goes on with the random states of rank 0"
    assert "augmented by other numbers of torch;" in found.found


def test_random_states_that_were_restored_late():
    found = finding_of(
        training(0, 2, draws=lambda n: [40.125, 41.0625] if n == 2 else [n + 6 + 0.25, n + 6 + 0.5]), training(1, 2)
    )
    assert found.cause == "they were restored when the first batch had been fetched"


def test_random_states_that_were_not_restored():
    found = finding_of(training(0, 2, draws=lambda n: [40.125 + n, 41.0625]), training(1, 2))
    assert found.found == "at step 2 on rank 0 the samples were augmented by other numbers of torch, Python"
    assert not found.cause


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (3, "those of Python are what step 3 had: what was restored was saved when 1 further batch had been fetched"),
        (1, "those of Python are what step 1 had: what was restored is older than the checkpoint"),
    ],
)
def test_a_stream_that_is_at_another_step(step, cause):
    """Python's stream is known by its numbers; torch's, which is right, is told as that."""

    def draws(n):
        return [n + n / 8, n + 0.5]

    whole = trained(
        WHERE, training(0, draws=draws), training(1), compared=[compared(worst=0.0, number=n) for n in range(4)]
    )
    other = resumed(training(0, 2, draws=lambda n: [n + (step + n - 2) / 8 % 1, n + 0.5]), training(1, 2))
    found = only(resumes.judge_resume(whole, KILLED, other).findings)
    assert (
        found.found
        == "at step 2 on rank 0 the samples were augmented by other numbers of Python; those of torch are right"
    )
    assert found.cause == cause


def test_a_stream_that_batches_have_drawn_from_that_were_passed_over():
    """One step of its epoch had been made, so that one batch has."""
    where = situation("long", epochs=2)

    def draws(n):
        return [n + n / 8, n + 0.5]

    def whole(rank):
        numbers = NUMBERS[rank] + [[sample + 20 for sample in batch] for batch in NUMBERS[rank]]
        return training(rank, 0, 8, draws=draws if rank == 0 else None, samples=lambda n: numbers[n])

    one = trained(where, whole(0), whole(1), compared=[compared(worst=0.0, number=n) for n in range(8)])
    other = resumed(training(0, 2, draws=lambda n: [n + (n + 2) / 8, n + 0.5]), training(1, 2))
    found = only(resumes.judge_resume(one, KILLED, other).findings)
    assert found.cause == (
        "those of Python are what step 4 had: batches that were passed over have drawn from what was restored"
    )


def test_dropout_that_draws_otherwise():
    found = finding_of(training(0, 2, masks=lambda n: [b"\7"]), training(1, 2))
    assert found.found == "at step 2 on rank 0 dropout drew otherwise"


def test_parameters_that_rank_0_alone_has():
    found = finding_of(training(0, 2), training(1, 2, shift=0.5))
    assert found.ranks == (1,)
    assert found.cause.startswith("rank 0 has the right ones")


def test_an_update_of_the_same_gradients():
    found = finding_of(training(0, 2, 3, after=0.5), training(1, 2, 3, after=0.5))
    assert "another update of the same gradients" in found.found
    assert "lost its state" in found.cause


def test_an_update_of_other_gradients():
    found = finding_of(training(0, 2, 3, after=0.5, gradient=3.0), training(1, 2, 3))
    assert "another update, of other gradients" in found.found


def test_what_ranks_take_into_a_step_is_told_before_what_they_make_of_it():
    found = finding_of(training(0, 2, 3, after=0.5, gradient=3.0), training(1, 2, shift=0.5))
    assert "other parameters before the step" in found.found


@pytest.mark.parametrize(("end", "found"), [(3, "1 step on ranks 0 and 1"), (2, "no further step")])
def test_too_few_steps(end, found):
    assert found in finding_of(training(0, 2, end), training(1, 2, end)).found


def test_too_many_steps_on_one_rank():
    NUMBERS[0].append([8, 9])
    try:
        assert finding_of(training(0, 2, 5), training(1, 2)).found == "3 steps on rank 0"
    finally:
        NUMBERS[0].pop()


def test_buffers_that_were_not_saved():
    finding = finding_of(training(0, 2, statistics="new"), training(1, 2))
    assert finding.found.startswith("buffers in the first forward that are not those of the uninterrupted training")
    assert "state_dict()" in finding.advice


# --- in another number of ranks


def _in_four(n, rank):
    """The samples of a rank of four, where two take ``NUMBERS``."""
    together = sorted(NUMBERS[0][n] + NUMBERS[1][n])
    return [together[rank]]


IN_FOUR = trained(
    WHERE,
    *(training(rank, 0, 3, samples=lambda n, rank=rank: _in_four(n, rank), returns=None) for rank in range(4)),
    ended=[killed_rank(rank) for rank in range(4)],
)


def of_four_in_two(*traces, **more):
    return resumes.judge_in_other_ranks(WHOLE, IN_FOUR, resumed(*traces, **more))


def test_two_ranks_go_on_from_what_four_have_saved():
    judged = of_four_in_two(training(0, 2), training(1, 2))
    assert (judged.checked, judged.findings) == (2, ())


def test_how_many_ranks_is_said():
    finding = only(of_four_in_two(training(0, 2, after=0.5), training(1, 2, after=0.5)).findings)
    assert finding.subject.endswith(", which 4 ranks have saved and 2 go on with")
    assert "the optimizer has lost its state" in finding.cause


@pytest.mark.parametrize(
    ("traces", "ended"),
    [
        ((training(0, 2, shift=0.3), training(1, 2, shift=0.3)), None),
        ((trace(), trace()), [raised(0, "sizes differ"), raised(1, "sizes differ")]),
    ],
)
def test_parts_that_are_not_put_together(traces, ended):
    finding = only(of_four_in_two(*traces, ended=ended).findings)
    assert finding.advice.startswith("Save what no number of ranks matters to")


def test_ranks_that_take_other_samples_together():
    """Chunks of the dataset, one for each rank: no uninterrupted training has such steps, and none is compared."""
    apart = trained(
        WHERE,
        *(training(rank, 0, 3, samples=lambda n, rank=rank: [100 * rank + n], returns=None) for rank in range(4)),
        ended=[killed_rank(rank) for rank in range(4)],
    )
    judged = resumes.judge_in_other_ranks(WHOLE, apart, resumed(training(0, 2), training(1, 2)))
    assert (judged.checked, judged.findings) == (0, ())
    assert "at step 0 4 ranks take other samples together than 2 do" in judged.skipped_because
