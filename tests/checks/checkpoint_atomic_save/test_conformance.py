"""What is said of a save that was killed."""

from __future__ import annotations

import pytest

from ddpcheck.checks.checkpoint_atomic_save import conformance as saves
from ddpcheck.evidence import training_record
from tests.judging.resumed_trainings import IN_SAVE, KILLED, NUMBERS, WHERE, resumed, saved, training
from tests.judging.trained import compared, only, raised, situation, trace, trained


def test_a_save_that_leaves_the_one_before_holds():
    judged = saved(training(0, 2), training(1, 2))
    assert (judged.checked, judged.findings) == (1, ())


def test_a_save_that_leaves_nothing_to_load():
    found = only(
        saved(trace(), trace(), ended=[raised(0, "x"), raised(1, "x")], headline="rank 0 failed", root=0).findings
    )
    assert found.found.startswith("it failed: rank 0 failed")
    assert "rename it over the checkpoint" in found.advice


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        ((training(0), training(1)), "it began again from the start"),
        ((training(0, 2, shift=0.5), training(1, 2, shift=0.5)), "it went on with parameters of no step"),
        ((trace(), trace()), "it went on with parameters of no step"),
    ],
)
def test_a_save_that_loses_what_was_there(traces, said):
    assert only(saved(*traces).findings).found == said


def test_a_save_that_was_not_killed_is_no_verdict():
    assert "nothing was in job.checkpoint_folder" in saved(training(0), training(1), by=KILLED).skipped_because
    whole = trained(WHERE, trace(training_record.Saving()), trace(training_record.Saving()))
    assert "before the kill" in saved(training(0), training(1), by=whole).skipped_because


@pytest.mark.parametrize(
    "other",
    [
        {"after": 0.25},  # the optimizer's state of another step
        {"rate": 0.05},
        {"samples": lambda n: NUMBERS[0][n - 2 + 1] if n == 3 else NUMBERS[0][n]},  # the place of an older checkpoint
    ],
)
def test_parts_of_two_checkpoints(other):
    """Each file may be whole, and what they make together not."""
    where = situation("long", epochs=1, save_every=1)
    whole = trained(where, training(0), training(1), compared=[compared(worst=0.0, number=n) for n in range(4)])
    torn = saves.judge_save(whole, IN_SAVE, resumed(training(0, 3, **other), training(1, 3)))
    assert only(torn.findings).found.startswith("parts of two checkpoints: the parameters of step 3")
    held = saves.judge_save(whole, IN_SAVE, resumed(training(0, 3), training(1, 3)))
    assert not held.findings


def test_an_epoch_that_begins_anew_is_not_torn():
    """That is resume-equivalence's to tell."""
    judged = saved(training(0, 3, samples=lambda n: NUMBERS[0][2]), training(1, 3))
    assert not judged.findings
