"""Whether each optimizer step was made of as many micro-batches as the job asks for."""

from __future__ import annotations

from ddpcheck.conformance.trained import Trained
from ddpcheck.model import Finding
from ddpcheck.wording import count, listing, ranks_text


def miscounted(trained: Trained, check: str) -> Finding | None:
    """The finding of steps that took other numbers of micro-batches; a last one of an epoch may have fewer.

    What the step makes of them is another matter: of whatever it took, its update may be the right one.
    """
    wanted, epochs = trained.situation.accumulation, trained.situation.epochs
    wrong = {}
    for rank, trace in enumerate(trained.traces):
        lengths = [len(window.micros) for window in trace.windows]
        short = sum(length < wanted for length in lengths)
        if short > epochs or any(length > wanted for length in lengths):
            wrong[rank] = lengths
    if not wrong:
        return None
    lengths = next(iter(wrong.values()))
    return Finding(
        check=check,
        severity="error",
        ranks=tuple(wrong),
        subject="the micro-batches of a step",
        expected=f"each optimizer step to take {count(wanted, 'micro-batch', 'micro-batches')} of every rank, as "
        "job.accumulation says; the last one of an epoch may have fewer",
        found=f"steps of {listing(map(str, lengths), 8)} micro-batches on {ranks_text(wrong)}, with "
        f"{trained.situation.about}",
        advice="Step the optimizer after job.accumulation micro-batches, and at the end of an epoch.",
    )


def left_over(trained: Trained, check: str) -> Finding | None:
    """The finding of micro-batches that no step has taken."""
    left = {rank: len(trained.traces[rank].rest) for rank in trained.ranks if trained.traces[rank].rest}
    if not left:
        return None
    rank, number = next(iter(left.items()))
    return Finding(
        check=check,
        severity="error",
        ranks=tuple(left),
        subject="the last micro-batches",
        expected="every micro-batch to go into an optimizer step",
        found=f"{count(number, 'micro-batch', 'micro-batches')} on rank {rank} after the last step, with "
        f"{trained.situation.about}",
        cause="the last window of an accumulation was not full, and no step followed it",
        advice="Step at the end of an epoch, too, or begin the next epoch with what is left.",
    )
