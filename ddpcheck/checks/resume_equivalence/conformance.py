"""`resume-equivalence`: what goes on after a kill goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.interrupted import close_to, failed_load, nothing_to_judge, same_gradients, start_of, violated
from ddpcheck.trainings.steps_with_micro_batches import STREAMS, Window
from ddpcheck.trainings.suite_row import Row
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

Judge = Callable[[Trained, Trained, Trained], Judged]
"""Given a training that was not interrupted, one that was killed, and the one that goes on from that."""


def judge_resume(whole: Trained, killed: Trained, resumed: Trained) -> Judged:
    """Judge a training that went on after a kill by one that was never interrupted."""
    if whole.failed:
        return Judged(checked=1, findings=(whole.failure(),))
    reason = nothing_to_judge(killed)
    if reason:
        return Judged(checked=0, skipped_because=reason)
    if resumed.failed:
        return failed_load(resumed, _GO_ON, _SAME_CHECKPOINT if resumed.hung else _LOADABLE, rule="failed-resume")
    idle = [rank for rank in resumed.ranks if not resumed.traces[rank].windows]
    if idle:
        return _nothing_made(whole, killed, resumed, idle)
    start = start_of(whole, resumed)
    if start is None:
        found = "the first forward with parameters that the uninterrupted training never had"
        lost = _lost(whole, resumed)
        return violated(resumed, resumed.ranks, _GO_ON, found, _ALL, lost, rule="unknown-start-parameters")
    if start == 0:
        found = "it began again with parameters from before the first step"
        return violated(resumed, resumed.ranks, _GO_ON, found, _NEWEST, rule="restart-from-scratch")
    if _buffers_differ(whole, resumed, start):
        found = (
            "buffers in the first forward that are not those of the uninterrupted training, with the same parameters"
        )
        advice = "Save state_dict(), which has the buffers, and load all of it."
        return violated(resumed, [0], _GO_ON, found, advice, rule="different-buffers")
    differs = _difference(whole, resumed, start)
    if differs is not None:
        return Judged(checked=1, findings=(differs,))
    return Judged(checked=len(resumed.traces[0].windows))


_GO_ON = "the training to go on from a checkpoint as if it had never been interrupted"
_NEWEST = "Save what job.save_every asks for into job.checkpoint_folder, and load the newest whole one of it."
_LOADABLE = (
    "See from the traceback what the load has not found: every rank has to load the same checkpoint, the newest whole "
    "one in job.checkpoint_folder, by the names that the save has given."
)
_SAME_CHECKPOINT = (
    "See from the stacks what the ranks wait for: all of them have to find the same checkpoint, and to go on from the "
    "same step; let one rank look for it, and inform the others."
)
_ALL = (
    "Save and load the model, the optimizer, the scheduler, the place in the epoch and the random states of every "
    "rank, and load them before DistributedDataParallel is built."
)


def _nothing_made(whole: Trained, killed: Trained, resumed: Trained, idle: list[int]) -> Judged:
    """What is said where the training was over as soon as it went on."""
    steps, every = len(whole.traces[0].windows), whole.situation.save_every or 1
    saved, each = len(killed.traces[0].windows) // every * every, max(1, steps // whole.situation.epochs)
    expected = f"{_GO_ON}: {count(steps - saved, 'further step')} from step {saved} on"
    cause, advice = "", _PLACE
    if saved and saved % each == 0:
        cause = (
            f"the checkpoint was saved when all batches of epoch {saved // each - 1} had been taken, and what is left "
            "of that epoch, nothing, was taken for the next one"
        )
        advice = "Where no batch of an epoch is left, evaluate it, and begin the next one by iterating its loader anew."
    found = f"no further step was made on {ranks_text(idle)}"
    return violated(resumed, idle, expected, found, advice, cause, rule="no-further-step")


def _buffers_differ(whole: Trained, resumed: Trained, start: int) -> bool:
    """Whether rank 0 went on with other buffers; its parameters, at this moment, are the same to the bit."""
    wanted, got = whole.traces[0].windows[start], resumed.traces[0].windows[0]
    if wanted.step.before != got.step.before or not wanted.micros or not got.micros:
        return False
    return wanted.micros[0].forward.statistics != got.micros[0].forward.statistics


def _lost(whole: Trained, resumed: Trained) -> str:
    """What may have been lost, where the parameters of no step came back."""
    first = resumed.traces[0].windows
    if not first or not whole.traces[0].windows:
        return ""
    names = resumed.traces[0].names
    known = [
        name
        for place, name in enumerate(names)
        if any(window.step.before[place] == first[0].step.before[place] for window in whole.traces[0].windows[1:])
    ]
    if not known:
        return "no parameter was loaded, or all were changed afterwards"
    return f"{listing([name for name in names if name not in known])} not loaded" if len(known) < len(names) else ""


class _Said(NamedTuple):
    """What differs first in a step of one rank."""

    what: str
    found: str
    cause: str
    advice: str
    rule: str


def _difference(whole: Trained, resumed: Trained, start: int) -> Finding | None:
    """The first difference of what follows: in what the ranks took into a step, and then in what they made of it."""
    expected = [whole.traces[rank].windows[start:] for rank in resumed.ranks]
    found = [resumed.traces[rank].windows for rank in resumed.ranks]
    for number in range(max(map(len, found))):
        for differs in (_taken_otherwise, _made_otherwise):
            said = {
                rank: one
                for rank in resumed.ranks
                if number < min(len(expected[rank]), len(found[rank]))
                and (one := differs(whole, resumed, rank, number, start)) is not None
            }
            if said:
                return _told(resumed, said, start, start + number)
    lengths = {rank: (len(expected[rank]), len(found[rank])) for rank in resumed.ranks}
    other = [rank for rank, (wanted_steps, got_steps) in lengths.items() if wanted_steps != got_steps]
    if other:
        wanted_steps, got_steps = lengths[other[0]]
        return Finding(
            rule="different-step-count",
            ranks=tuple(other),
            subject=f"fit(job), {resumed.situation.about}",
            expected=f"{count(wanted_steps, 'further step')} from step {start} on",
            found=f"{count(got_steps, 'step')} on {ranks_text(other)}",
            advice=_PLACE,
        )
    return None


def _told(resumed: Trained, said: dict[int, _Said], start: int, step: int) -> Finding:
    rank, first = next(iter(said.items()))
    ranks = [other for other, one in said.items() if one.what == first.what]
    likewise = f"; the same holds for {ranks_text(ranks[1:])}" if len(ranks) > 1 else ""
    return Finding(
        rule=first.rule,
        ranks=tuple(ranks),
        subject=f"fit(job), {resumed.situation.about}",
        expected=f"{_GO_ON}: from step {start} on, with the same {first.what}",
        found=f"at step {step} on rank {rank} {first.found}{likewise}",
        cause=first.cause,
        advice=first.advice,
        step=step,
    )


_PLACE = (
    "Save the epoch and the number of batches that were taken in it; give the sampler that epoch, and go on with "
    "the batches that follow."
)


def _taken_otherwise(whole: Trained, resumed: Trained, rank: int, number: int, start: int) -> _Said | None:
    """What a rank took into a step: its samples, random numbers, learning rate and parameters."""
    wanted, got = whole.traces[rank].windows[start + number], resumed.traces[rank].windows[number]
    if wanted.samples != got.samples:
        return _Said(
            "samples",
            f"samples {_shown(got.samples)} instead of {_shown(wanted.samples)}",
            _cause_of_samples(whole, rank, start + number, got),
            _PLACE,
            rule="different-samples",
        )
    others = _other_streams(wanted, got)
    if others or _masks(wanted) != _masks(got):
        cause = _cause_of_draws(whole, resumed, rank, number, start)
        text = (
            f"the samples were augmented by other numbers of {listing(others)}" if others else "dropout drew otherwise"
        )
        right = [stream for stream in STREAMS if stream not in others and any(_drawn(stream, wanted))]
        text += f"; those of {listing(right)} are right" if others and right else ""
        return _Said("random numbers", text, cause, _STREAMS, rule="different-random-numbers")
    if wanted.step.rates != got.step.rates:
        due = whole.traces[rank].scheduled(start, start + number)
        left_out = resumed.traces[rank].scheduled(0, number) < due
        return _Said(
            "learning rate",
            f"the learning rate {got.step.rates[0]:.6g} instead of {wanted.step.rates[0]:.6g}",
            "the evaluation that was due before this step was left out" if left_out else "",
            "Where a checkpoint was saved before its epoch was evaluated, evaluate it first, and step the scheduler."
            if left_out
            else "Save and load the scheduler's state, too, and make the scheduler before the state is loaded.",
            rule="different-learning-rate",
        )
    if not close_to(whole, wanted.step.before, got.step.before, start + number):
        loaded = rank and close_to(
            whole, whole.traces[0].windows[start + number].step.before, resumed.traces[0].windows[number].step.before,
            start + number,
        )  # fmt: skip
        cause = "rank 0 has the right ones: not all ranks have loaded them, or have been sent them" if loaded else ""
        return _Said("parameters", "other parameters before the step", cause, _ALL, rule="different-parameters")
    return None


_STREAMS = (
    "Save every rank's own random states (torch, Python, numpy) as they are before the next batch is fetched, and "
    "restore them on that rank before it is, but after the loader's iterator was made, which draws for itself."
)


def _cause_of_samples(whole: Trained, rank: int, step: int, got: Window) -> str:
    """Where in the uninterrupted training these samples were taken."""
    steps = [window.samples for window in whole.traces[rank].windows]
    if got.samples not in steps:
        return _cause_of_batches(steps, step, whole.situation.epochs, got.samples[:1])
    place, each = steps.index(got.samples), max(1, len(steps) // whole.situation.epochs)
    if place // each != step // each:
        order = f"epoch {step // each} is gone on with in the order of epoch {place // each}"
        return f"{order}: these are the samples of step {place}"
    many = "much" if place > step else "little"
    return f"too {many} of the epoch was passed over: these are the samples of step {place}"


def _cause_of_batches(steps: list[list[list[int]]], step: int, epochs: int, first: list[list[int]]) -> str:
    """By how many micro-batches the place is off, where that makes no whole steps."""
    batches = [batch for taken in steps for batch in taken]
    if not first or first[0] not in batches:
        return ""
    place, wanted = batches.index(first[0]), sum(len(taken) for taken in steps[:step])
    each = max(1, len(batches) // epochs)
    if place == wanted or place // each != wanted // each:
        return ""
    many = "much" if place > wanted else "little"
    return f"too {many} of the epoch was passed over, by {count(abs(place - wanted), 'micro-batch', 'micro-batches')}"


def _cause_of_draws(whole: Trained, resumed: Trained, rank: int, number: int, start: int) -> str:
    """Whose random numbers these are."""
    windows, got = whole.traces[rank].windows, resumed.traces[rank].windows
    for other in whole.ranks:
        theirs = whole.traces[other].windows
        if other != rank and len(theirs) > start + number and _alike(theirs[start + number], got[number]):
            return f"rank {rank} goes on with the random states of rank {other}"
    # Python's own stream tells: no dropout draws from it in between.
    of_steps, drawn = [_drawn("Python", window) for window in windows], _drawn("Python", got[number])
    if not any(drawn) or drawn == of_steps[start + number]:
        only_numpy = _other_streams(windows[start + number], got[number]) == ["numpy"]
        return "numpy's state was not saved, or not restored" if only_numpy else ""
    right_then = number == 0 and len(got) > 1 and _drawn("Python", got[1]) == of_steps[start]
    if right_then and not (start and drawn == of_steps[start - 1]):
        return "they were restored when the first batch had been fetched"
    if drawn not in of_steps:
        return ""
    step = of_steps.index(drawn)
    ahead, passed = step - (start + number), start % max(1, len(windows) // whole.situation.epochs)
    if not step:
        why = "nothing was restored, or the streams were seeded anew"
    elif ahead < 0:
        why = "what was restored is older than the checkpoint"
    elif ahead == passed:
        why = "batches that were passed over have drawn from what was restored"
    else:
        why = f"what was restored was saved when {count(ahead, 'further batch', 'further batches')} had been fetched"
    return f"those of Python are what step {step} had: {why}"


def _alike(wanted: Window, got: Window) -> bool:
    return not _other_streams(wanted, got) and _masks(wanted) == _masks(got)


def _other_streams(wanted: Window, got: Window) -> list[str]:
    """The streams that have drawn other numbers for the samples."""
    return [stream for stream in STREAMS if _drawn(stream, wanted) != _drawn(stream, got)]


def _drawn(stream: str, window: Window) -> list[float]:
    return [draw for micro in window.micros for draw in STREAMS[stream](micro.forward)]


def _masks(window: Window) -> list[list[bytes]]:
    return [micro.forward.masks for micro in window.micros]


def _made_otherwise(whole: Trained, resumed: Trained, rank: int, number: int, start: int) -> _Said | None:
    """What a rank made of the same: its parameters after the step."""
    wanted, got = whole.traces[rank].windows[start + number], resumed.traces[rank].windows[number]
    if close_to(whole, wanted.step.after, got.step.after, start + number + 1):
        return None
    if same_gradients(wanted, got):
        return _Said(
            "update",
            "another update of the same gradients",
            "the optimizer has lost its state, such as the moments of the gradients",
            "Save and load the optimizer's state, too.",
            rule="different-update",
        )
    return _Said("update", "another update, of other gradients", "", _ALL, rule="different-update")


def _shown(batches: Sequence[list[int]]) -> str:
    return listing([str(n) for batch in batches for n in batch], 8)


def judge_in_other_ranks(whole: Trained, killed: Trained, resumed: Trained) -> Judged:
    """Judge what goes on in another number of ranks, by a training that had that number from its beginning."""
    shared = list(zip(_global_batches(whole), _global_batches(killed), strict=False))
    apart = [step for step, (wanted, got) in enumerate(shared) if wanted != got]
    if apart and not whole.failed:
        reason = (
            f"at step {apart[0]} {killed.world_size} ranks take other samples together than {resumed.world_size} do: "
            "no training that was not interrupted has taken these steps"
        )
        return Judged(checked=0, skipped_because=reason)
    judged = judge_resume(whole, killed, resumed)
    how = f", which {count(killed.world_size, 'rank')} have saved and {resumed.world_size} go on with"
    found = [replace(one, subject=one.subject + how) for one in judged.findings]
    if resumed.failed:
        misread = not resumed.hung and resumed.explained is None
    else:
        misread = bool(resumed.traces[0].windows) and start_of(whole, resumed) is None
    if misread:
        found = [replace(one, advice=_FOR_ANY_NUMBER) for one in found]
    return replace(judged, findings=tuple(found))


_FOR_ANY_NUMBER = (
    "Save what no number of ranks matters to: whole tensors, or parts by torch.distributed.checkpoint, which knows "
    "where each lies; raise ddpcheck.NotSupported where job.saved_world_size is another than job.world_size, and the "
    "library cannot go on."
)


def _global_batches(trained: Trained) -> list[list[int]]:
    """The samples of each step, of all ranks together."""
    steps = zip(*(trace.windows for trace in trained.traces), strict=False)
    return [sorted(n for window in step for batch in window.samples for n in batch) for step in steps]


def _row(kind: str = "", least: int = 1, world_sizes: tuple[int, ...] = (), judge: Judge = judge_resume) -> Row:
    return Row(
        "resume-equivalence" + (kind and f":{kind}"),
        tuple(name + (kind and f"-{kind}") for name in ("long", "killed", "resumed")),
        lambda trained: judge(*trained),
        least,
        world_sizes,
        oracle=True,
        also_failed=True,
    )


ROWS = (
    _row(),
    _row("accumulation"),
    _row("epoch-end"),
    _row("random"),
    _row("fsdp2", 2),
    _row("fsdp2-reshard", 2, (2, 4), judge_in_other_ranks),
    _row("hsdp", 4, (4,)),
    _row("ddp-tp", 4, (4,)),
)
