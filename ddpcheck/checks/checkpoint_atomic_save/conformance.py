"""`checkpoint-atomic-save`: a kill in the middle of a save leaves the checkpoint before it."""

from __future__ import annotations

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.interrupted import close_to, failed_load, nothing_to_judge, same_gradients, start_of, violated
from ddpcheck.trainings.suite_row import Row
from ddpcheck.trainings.trained_situation import Trained


def judge_save(whole: Trained, killed: Trained, resumed: Trained) -> Judged:
    """Judge a training that went on after a kill in its save by one that was never interrupted."""
    if whole.failed:
        return Judged(checked=1, findings=(whole.failure(),))
    if not any(trace.of(training_record.Saving) for trace in killed.traces):
        nothing = "nothing was in job.checkpoint_folder to be saved over"
        return Judged(checked=0, skipped_because=nothing)
    reason = nothing_to_judge(killed)
    if reason:
        return Judged(checked=0, skipped_because=reason)
    if resumed.failed:
        return failed_load(resumed, _BEFORE, _RENAME, rule="lost-checkpoint")
    start = start_of(whole, resumed)
    if start and _of_two_checkpoints(whole, resumed, start):
        found = (
            f"parts of two checkpoints: the parameters of step {start}, with another optimizer state, learning rate or "
            "place in the epoch"
        )
        return violated(resumed, [0], _BEFORE, found, _TOGETHER, rule="mixed-checkpoint")
    if start:
        return Judged(checked=1)
    found = "it began again from the start" if start == 0 else "it went on with parameters of no step"
    return violated(resumed, resumed.ranks, _BEFORE, found, _RENAME, rule="lost-checkpoint")


def _of_two_checkpoints(whole: Trained, resumed: Trained, start: int) -> bool:
    """Whether the first step took the same samples, and made something else of them."""
    if not resumed.traces[0].windows or start >= len(whole.traces[0].windows):
        return False
    wanted, got = whole.traces[0].windows[start], resumed.traces[0].windows[0]
    if wanted.samples != got.samples:
        # An epoch that begins anew is resume-equivalence's to tell; the place of an older checkpoint is another one's.
        an_epoch = len(whole.traces[0].windows) // whole.situation.epochs
        older = range(0, start, whole.situation.save_every or 1)
        return any(n % an_epoch and whole.traces[0].windows[n].samples == got.samples for n in older)
    if wanted.step.rates != got.step.rates:
        return True
    return same_gradients(wanted, got) and not close_to(whole, wanted.step.after, got.step.after, start + 1)


_BEFORE = "a training that is killed in the middle of a save to go on from the checkpoint before it"
_TOGETHER = "Write all that belongs to a checkpoint into one file, or into one folder that is renamed when it is whole."
_RENAME = "Write to another name in the same folder, and rename it over the checkpoint once it is whole."


ROWS = (
    Row(
        "checkpoint-atomic-save",
        ("long", "killed-in-save", "resumed-in-save"),
        lambda trained: judge_save(*trained),
        oracle=True,
        also_failed=True,
    ),
)
