"""`resume-equivalence` and `checkpoint-atomic-save`: what goes on after a kill goes on where it was."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ddpcheck.checks.world import Judged
from ddpcheck.conformance import facts
from ddpcheck.conformance.traces import Window
from ddpcheck.conformance.trained import Trained
from ddpcheck.model import Finding
from ddpcheck.wording import count, listing, ranks_text

RESUME = "resume-equivalence"
ATOMIC = "checkpoint-atomic-save"


def judge_resume(whole: Trained, killed: Trained, resumed: Trained) -> Judged:
    """Judge a training that went on after a kill by one that was never interrupted."""
    reason = _nothing_to_judge(killed)
    if reason:
        return Judged(check=RESUME, exercised=0, skipped_because=reason)
    if resumed.failed:
        return _violated(RESUME, resumed, [resumed.outcome.root or 0], _GO_ON, _failed(resumed), _LOADABLE)
    start = _start(whole, resumed)
    if start is None:
        found = "the first forward with parameters that the uninterrupted training never had"
        return _violated(RESUME, resumed, list(resumed.ranks), _GO_ON, found, _ALL, _lost(whole, resumed))
    if start == 0:
        found = "it began again with parameters from before the first step"
        return _violated(RESUME, resumed, list(resumed.ranks), _GO_ON, found, _LOADABLE)
    finding = _difference(whole, resumed, start)
    if finding is not None:
        return Judged(check=RESUME, exercised=1, findings=(finding,))
    return Judged(check=RESUME, exercised=len(resumed.traces[0].windows))


_GO_ON = "the training to go on from a checkpoint as if it had never been interrupted"
_LOADABLE = "Save what job.save_every asks for into job.checkpoint_folder, and load the newest whole one of it."
_ALL = (
    "Save and load the model, the optimizer, the scheduler, the place in the epoch and the random states of every "
    "rank, and load them before DistributedDataParallel is built."
)


def _nothing_to_judge(killed: Trained) -> str:
    """Why a kill came to nothing, as a clause."""
    if all(trace.returned for trace in killed.traces):
        return "the training came to its end before the kill"
    if not any(ending.signal is not None for ending in killed.record.endings):
        return f"the training ended otherwise than by the kill: {killed.outcome.headline}"
    return ""


def _start(whole: Trained, resumed: Trained) -> int | None:
    """After how many steps of the uninterrupted training rank 0 went on; None where its parameters tell of none."""
    first = resumed.traces[0].windows
    if not first:
        return None
    begins = [window.step.before for window in whole.traces[0].windows]
    return next((n for n, before in enumerate(begins) if _close(whole, before, first[0].step.before, n)), None)


def _close(whole: Trained, expected: Sequence[bytes], found: Sequence[bytes], steps: int) -> bool:
    """Whether these are the same parameters, but for what so many steps may round otherwise.

    DDP lays its buckets out anew after its first backward, and the sums of gloo depend on that: a training that goes
    on adds up in another order for a step.
    """
    if expected == found:
        return True
    if len(expected) != len(found):
        return False
    for place, (a, b) in enumerate(zip(expected, found, strict=True)):
        if len(a) != len(b) or len(a) % 8:
            return False
        if any(abs(x - y) > _allowed(whole, place, steps) for x, y in zip(array("d", a), array("d", b), strict=True)):
            return False
    return True


def _allowed(whole: Trained, place: int, steps: int) -> float:
    """What rounding may have made of one parameter after so many steps: as measured at each of them, added up."""
    compared = whole.comparison.steps[: steps + 1] if whole.comparison is not None else ()
    return sum(step.gaps[place].allowed for step in compared)


def _lost(whole: Trained, resumed: Trained) -> str:
    """What may have been lost, where the parameters of no step came back."""
    first = resumed.traces[0].windows
    if not first or not whole.traces[0].windows:
        return ""
    names = resumed.traces[0].names
    known = [
        name
        for place, name in enumerate(names)
        if any(window.step.before[place] == first[0].step.before[place] for window in whole.traces[0].windows)
    ]
    if not known:
        return "no parameter was loaded, or all were changed afterwards"
    return f"{listing([name for name in names if name not in known])} not loaded" if len(known) < len(names) else ""


def _difference(whole: Trained, resumed: Trained, start: int) -> Finding | None:
    """The first difference of what follows."""
    for rank in resumed.ranks:
        expected, found = whole.traces[rank].windows[start:], resumed.traces[rank].windows
        for number, (wanted, got) in enumerate(zip(expected, found, strict=False)):
            said = _step_differs(whole, wanted, got, start + number)
            if said is not None:
                what, text, advice = said
                return _finding(
                    RESUME,
                    resumed,
                    [rank],
                    f"{_GO_ON}: from step {start} on, with the same {what}",
                    f"at step {start + number} on rank {rank} {text}",
                    advice,
                    step=start + number,
                )
    lengths = {
        rank: (len(whole.traces[rank].windows) - start, len(resumed.traces[rank].windows)) for rank in resumed.ranks
    }
    other = [rank for rank, (wanted_steps, got_steps) in lengths.items() if wanted_steps != got_steps]
    if other:
        wanted_steps, got_steps = lengths[other[0]]
        return _finding(
            RESUME,
            resumed,
            other,
            f"{count(wanted_steps, 'further step')} from step {start} on",
            f"{count(got_steps, 'step')} on {ranks_text(other)}",
            "Save the epoch and the number of batches that were taken in it, and go on with those that follow.",
        )
    return None


def _step_differs(whole: Trained, wanted: Window, got: Window, number: int) -> tuple[str, str, str] | None:
    """What differs first in a step: its name, what was found, and the mend."""
    samples = [m.forward.samples for m in wanted.micros], [m.forward.samples for m in got.micros]
    if samples[0] != samples[1]:
        return (
            "samples",
            f"samples {_shown(samples[1])} instead of {_shown(samples[0])}",
            "Save the epoch and the number of batches that were taken in it; go on with those that follow, in the "
            "order of that epoch.",
        )
    if [m.forward.draws for m in wanted.micros] != [m.forward.draws for m in got.micros]:
        return (
            "random numbers",
            "the samples were augmented by other random numbers",
            "Save each rank's own random states (torch, Python, numpy), and restore them before the next batch is "
            "fetched.",
        )
    if [m.forward.masks for m in wanted.micros] != [m.forward.masks for m in got.micros]:
        return (
            "random numbers",
            "dropout drew otherwise",
            "Save each rank's own random states, not only rank 0's, and restore them on that rank.",
        )
    if wanted.step.rates != got.step.rates:
        return (
            "learning rate",
            f"the learning rate {got.step.rates[0]:.6g} instead of {wanted.step.rates[0]:.6g}",
            "Save and load the scheduler's state, too, and make the scheduler before the state is loaded.",
        )
    if not _close(whole, wanted.step.before, got.step.before, number):
        return "parameters", "other parameters before the step", _ALL
    if not _close(whole, wanted.step.after, got.step.after, number + 1):
        same = _same_gradients(wanted, got)
        return (
            "update",
            "another update"
            + (" of the same gradients: the optimizer's moments were not those" if same else ", of other gradients"),
            "Save and load the optimizer's state, too." if same else _ALL,
        )
    return None


def _same_gradients(wanted: Window, got: Window) -> bool:
    pairs = zip(wanted.step.gradients, got.step.gradients, strict=True)
    return all(
        a == b or (a is not None and b is not None and all(
            abs(x - y) <= 1e-9 * max(abs(x), 1e-6) for x, y in zip(array("d", a), array("d", b), strict=True)
        ))
        for a, b in pairs
    )  # fmt: skip


def _shown(batches: Sequence[list[int]]) -> str:
    return listing([str(n) for batch in batches for n in batch], 8)


# --- a kill in a save


def judge_save(whole: Trained, killed: Trained, resumed: Trained) -> Judged:
    """`checkpoint-atomic-save`: a kill in the middle of a save leaves the checkpoint before it."""
    if not any(trace.of(facts.Saving) for trace in killed.traces):
        return Judged(
            check=ATOMIC, exercised=0, skipped_because="nothing was in job.checkpoint_folder to be saved over"
        )
    reason = _nothing_to_judge(killed)
    if reason:
        return Judged(check=ATOMIC, exercised=0, skipped_because=reason)
    if resumed.failed:
        return _violated(ATOMIC, resumed, [resumed.outcome.root or 0], _BEFORE, _failed(resumed), _RENAME)
    start = _start(whole, resumed)
    if start:
        return Judged(check=ATOMIC, exercised=1)
    found = "it began again from the start" if start == 0 else "it went on with parameters of no step"
    return _violated(ATOMIC, resumed, list(resumed.ranks), _BEFORE, found, _RENAME)


_BEFORE = "a training that is killed in the middle of a save to go on from the checkpoint before it"
_RENAME = "Write to another name in the same folder, and rename it over the checkpoint once it is whole."


def _failed(resumed: Trained) -> str:
    return f"{'it hung' if resumed.hung else 'it failed'}: {resumed.outcome.headline}\n{resumed.text}"


def _violated(
    check: str, trained: Trained, ranks: list[int], expected: str, found: str, advice: str, cause: str = ""
) -> Judged:
    return Judged(
        check=check, exercised=1, findings=(_finding(check, trained, ranks, expected, found, advice, cause=cause),)
    )


def _finding(
    check: str,
    trained: Trained,
    ranks: list[int],
    expected: str,
    found: str,
    advice: str,
    step: int | None = None,
    cause: str = "",
) -> Finding:
    return Finding(
        check=check,
        severity="error",
        ranks=tuple(ranks),
        subject=f"fit(job), {trained.situation.about}",
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        step=step,
    )
