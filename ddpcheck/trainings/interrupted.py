"""A training that goes on after a kill, beside one that was never interrupted: where it went on, and with what."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.steps_with_micro_batches import Window
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding


def nothing_to_judge(killed: Trained) -> str:
    """Why a kill came to nothing, as a clause."""
    if all(trace.returned for trace in killed.traces):
        return "the training came to its end before the kill"
    if not any(ending.signal is not None for ending in killed.record.endings):
        return f"the training ended otherwise than by the kill: {killed.outcome.headline}"
    return ""


def start_of(whole: Trained, resumed: Trained) -> int | None:
    """After how many steps of the uninterrupted training rank 0 went on; None where its parameters tell of none."""
    first = resumed.traces[0].windows
    begins = [window.step.before for window in whole.traces[0].windows]
    if not first:
        return None
    return next((n for n, before in enumerate(begins) if close_to(whole, before, first[0].step.before, n)), None)


def close_to(whole: Trained, expected: Sequence[bytes], found: Sequence[bytes], steps: int) -> bool:
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


def same_gradients(wanted: Window, got: Window) -> bool:
    pairs = zip(wanted.step.gradients, got.step.gradients, strict=True)
    return all(
        a == b or (a is not None and b is not None and all(
            abs(x - y) <= 1e-9 * max(abs(x), 1e-6) for x, y in zip(array("d", a), array("d", b), strict=True)
        ))
        for a, b in pairs
    )  # fmt: skip


def failed_load(resumed: Trained, expected: str, advice: str, *, rule: str) -> Judged:
    """What is said where it did not go on at all; what is known of an exception's words goes before the advice."""
    known = resumed.explained
    found = f"{'it hung' if resumed.hung else 'it failed'}: {resumed.outcome.headline}\n{resumed.text}"
    told = (known.advice, known.cause) if known is not None else (advice, "")
    return violated(resumed, [resumed.outcome.root or 0], expected, found, *told, rule=rule)


def violated(
    trained: Trained, ranks: Sequence[int], expected: str, found: str, advice: str, cause: str = "", *, rule: str
) -> Judged:
    finding = Finding(
        rule=rule,
        ranks=tuple(ranks),
        subject=f"fit(job), {trained.situation.about}",
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
    )
    return Judged(checked=1, findings=(finding,))
