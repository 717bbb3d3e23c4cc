"""Whether each optimizer step was made of as many micro-batches as the job asks for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ddpcheck.evidence import training_record
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def miscounted(trained: Trained) -> Finding | None:
    """The finding of steps that took other numbers of micro-batches, or of a training that took too few of them.

    A last step of an epoch may have fewer. What a step makes of them is another matter: of whatever it took, its
    update may be the right one.
    """
    wanted, epochs = trained.situation.accumulation, trained.situation.epochs
    wrong = {}
    for rank, trace in enumerate(trained.traces):
        lengths = [len(window.micros) for window in trace.windows]
        short = sum(length < wanted for length in lengths)
        if short > epochs or not all(0 < length <= wanted for length in lengths):
            wrong[rank] = lengths
    if wrong:
        lengths = next(iter(wrong.values()))
        without = ", and none without" if 0 in lengths else ""
        return Finding(
            rule="wrong-micro-batch-count",
            ranks=tuple(wrong),
            subject="the micro-batches of a step",
            expected=f"each optimizer step to take {count(wanted, 'micro-batch', 'micro-batches')} of every rank, as "
            f"job.accumulation says; the last one of an epoch may have fewer{without}",
            found=f"steps of {listing(map(str, lengths), 8)} micro-batches on {ranks_text(wrong)}, with "
            f"{trained.situation.about}",
            cause="some forwards were in evaluation mode, or steps were made of nothing new" if without else "",
            advice="Step the optimizer after job.accumulation micro-batches, and at the end of an epoch; call train() "
            "before each epoch.",
        )
    return _too_few(trained)


def _too_few(trained: Trained) -> Finding | None:
    """The finding of a training that ended before its time; batch-count is stricter."""
    situation = trained.situation
    an_epoch = min(situation.micro_batches(trained.world_size))
    least = (an_epoch - 1) * situation.epochs if an_epoch > 1 else situation.epochs
    few = [rank for rank in trained.ranks if len(trained.traces[rank].micros) < least]
    if not few:
        return None
    found = len(trained.traces[few[0]].micros)
    return Finding(
        rule="training-too-short",
        ranks=tuple(few),
        subject="the epochs",
        expected=f"{count(situation.epochs, 'epoch')} of {count(an_epoch, 'batch', 'batches')} on every rank",
        found=f"{count(found, 'micro-batch', 'micro-batches')} in all on {ranks_text(few)}, with {situation.about}",
        advice="Train for job.epochs epochs, whatever else the job asks for.",
    )


def changed_between(trained: Trained) -> Finding | None:
    """The finding of parameters that were changed by something else than an optimizer step."""
    for rank, trace in enumerate(trained.traces):
        for number, (last, following) in enumerate(pairwise(trace.steps)):
            if last.after != following.before:
                return _changed(trained, rank, last.after, following.before, f"between steps {number} and {number + 1}")
        returned = trace.first(training_record.Returned)
        known = [list(step.after) for step in trace.steps]  # the best epoch, say, may have been loaded at the end
        if returned is not None and known and list(returned.parameters) not in known:
            return _changed(trained, rank, trace.steps[-1].after, returned.parameters, "after the last step")
    return None


def _changed(trained: Trained, rank: int, before: Sequence[bytes], after: Sequence[bytes], when: str) -> Finding:
    names = [
        name for name, a, b in zip(trained.traces[rank].names, before, after, strict=False) if a != b
    ]  # fmt: skip
    return Finding(
        rule="change-outside-step",
        ranks=(rank,),
        subject=listing(names),
        expected="the parameters to be changed by the steps of the optimizer alone",
        found=f"{count(len(names), 'parameter')} changed {when} on rank {rank}, with {trained.situation.about}",
        cause="weights were averaged, scaled, loaded or made anew outside of optimizer.step()",
        advice="Leave job.model as the last step of the optimizer has made it; average in a copy.",
    )


def left_over(trained: Trained) -> Finding | None:
    """The finding of micro-batches that no step has taken."""
    left = {rank: len(trained.traces[rank].rest) for rank in trained.ranks if trained.traces[rank].rest}
    if not left:
        return None
    rank, number = next(iter(left.items()))
    return Finding(
        rule="unused-micro-batches",
        ranks=tuple(left),
        subject="the last micro-batches",
        expected="every micro-batch to go into an optimizer step",
        found=f"{count(number, 'micro-batch', 'micro-batches')} on rank {rank} after the last step, with "
        f"{trained.situation.about}",
        cause="the last window of an accumulation was not full, and no step followed it",
        advice="Step at the end of an epoch, too, or begin the next epoch with what is left.",
    )
