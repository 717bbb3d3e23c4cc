"""Are gradients only added to, from the first micro-batch of a step to its last? Judge of accumulation-window."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.accumulation_window import stages
from ddpcheck.judging import declared_windows as declared
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

_GONE = ("lost", "zeroed")

STEPPED = "step-per-micro-batch"
"""An advisory: of what was compared it shows nothing."""
ENOUGH = 3
"""Windows that have to be alike, to be the way in which a program steps."""

Windows = list[ev.Window]


def judge(world: World) -> Judged:
    """Follow the gradients of each optimizer from backward to backward, and count what goes into a step."""
    compared: step_alignment.Windows = set()
    changed: step_alignment.Windows = set()
    findings: list[Finding] = []
    for rank in world:
        for optimizer, windows in declared.by_optimizer(rank).items():
            for one, kept in _kept(rank, optimizer, windows):
                (compared if kept else changed).add((optimizer, one.number))
            for part in _PARTS:
                for finding in part(rank, optimizer, windows):
                    _add(findings, finding)
    for rank, optimizer, windows, number in stages.zeroed(world):
        _add(findings, _of_stage(rank, optimizer, windows, number))
    # What was changed shows nothing, but where a finding is about it.
    is_found = any(one.rule != STEPPED for one in findings)
    checked, made = step_alignment.coverage(world, compared | changed if is_found else compared - changed)
    return Judged(
        checked=checked,
        of=made,
        findings=tuple(findings),
        skipped_because="ddpcheck saw no step whose gradients stayed from one backward() to the next on all ranks"
        if any(window.backwards > 1 for _, window in world.of(ev.Window))
        else "ddpcheck saw no step made of several backward() calls",
    )


def _kept(rank: Rank, optimizer: int, windows: Windows) -> Iterator[tuple[ev.Window, bool]]:
    """The windows of several backward() calls, each with whether gradients were seen to stay, and to be added to.

    What stays while another optimizer steps, and is not what the step is made on, may be nothing that backward() left.
    """
    others, began = [step.n for step in rank.of(ev.Step) if step.optimizer != optimizer], 0
    for one in windows:
        became = {between.became for between in one.between}
        own = one.as_left or bisect_right(others, began) == bisect_right(others, one.n)
        if became or one.unreduced or one.leftover:
            yield one, own and "kept" in became <= {"kept", "other"} and not (one.unreduced or one.leftover)
        began = one.n


def _add(findings: list[Finding], finding: Finding) -> None:
    """Ranks, and optimizers of one function, have one and the same finding."""
    for place, other in enumerate(findings):
        if (_function(other), other.cause, other.expected) == (_function(finding), finding.cause, finding.expected):
            ranks = tuple(sorted({*other.ranks, *finding.ranks}))
            findings[place] = replace(other, ranks=ranks, count=max(other.count, finding.count))
            return
    findings.append(finding)


def _function(finding: Finding) -> tuple[str, str] | None:
    return (finding.where.file, finding.where.function) if finding.where is not None else None


# --- a step for each micro-batch


def _stepped(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """Every backward() is followed by a step, though its loss is a part of that of several."""
    # Before the first step there may have been calls that try a model out.
    told = [one for one in windows if one.number > 0 or len(windows) < ENOUGH]
    numbers = {declared.micro_batches(rank, one) for one in told}
    if len(told) < ENOUGH or len(numbers) > 1 or 0 in numbers:
        return
    if any(one.backwards > 1 or one.forwards > 1 for one in told):
        return
    number, first = numbers.pop(), told[0]
    within = all(one.within for one in told)
    yield _finding(
        rank,
        optimizer,
        first,
        rule=STEPPED,
        expected=f"one step for {number} backward() calls, of which each has a loss that is divided by {number}",
        found=f"a step after every one of them ({count(len(told), 'step')} looked at), on a part of the gradient each",
        cause="the optimizer steps within backward(), as soon as a gradient is there"
        if within
        else "the condition for a step holds for every micro-batch",
        advice="Step within backward() in the last micro-batch of a window alone, or after it."
        if within
        else "Step, and call zero_grad(), after the last micro-batch of a window alone.",
        times=len(told),
    )


# --- what is done to gradients between


def _rescaled(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """Gradients of earlier micro-batches count less than those of later ones, or more."""
    by_clip: dict[int, list[tuple[ev.Window, ev.Between]]] = defaultdict(list)
    for window in windows:
        if not _is_a_mean(window):
            for one in window.between:
                # Another line's loss may be meant to have its gradients left as they are.
                if one.became == "rescaled" and one.after == one.before:
                    by_clip[one.clip].append((window, one))
    for clip, each in by_clip.items():
        window, one = each[0]
        if len({w.number for w, _ in each}) < 2:
            continue
        what = f"{_name(rank, window, one.place)} multiplied by {one.factor:.4g} between two backward() of one window"
        yield _finding(
            rank,
            optimizer,
            window,
            rule="rescaled-gradients",
            severity="error" if clip != ev.NO_SITE else "warning",
            subject=_name(rank, window, one.place),
            expected="gradients to be added to, and left as they are, until the last micro-batch of a step",
            found=f"the gradient of {what}: earlier micro-batches count otherwise than the last one",
            cause="gradients are clipped after every micro-batch, and not once before the step"
            if clip != ev.NO_SITE
            else "they are scaled in place with every micro-batch, and not once before the step",
            advice="Clip once, after the last backward() of the window and before the step."
            if clip != ev.NO_SITE
            else "Scale gradients once before the step, or scale what each micro-batch adds before it is added.",
            site=clip if clip != ev.NO_SITE else window.backward_site,
            times=len({w.number for w, _ in each}),
        )


def _is_a_mean(window: ev.Window) -> bool:
    """Whether gradients are kept as the mean of the micro-batches so far: 1/2, 2/3, 3/4."""
    factors = [one.factor for one in window.between if one.became == "rescaled"]
    return len(factors) == len(window.between) and all(
        abs(factor - n / (n + 1)) < 1e-3 for n, factor in enumerate(factors, 1)
    )


def _lost(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """A line's gradients are there at the next backward() in some places, and gone in others."""
    kept = {one.after for window in windows for one in window.between if one.became == "kept"}
    between = [(w, one) for w in windows for one in w.between if one.after in kept]
    gone = [(w, one) for w, one in between if one.became in _GONE and one.after == one.before and w.as_left]
    # zero_grad() may be meant, such as for a batch that is left out. A model that is made anew means nothing by it.
    gone = [(w, one) for w, one in gone if one.became == "lost" or one.prepared]
    if not gone or 2 * len(gone) > len(between):
        return
    window, one = gone[0]
    prepared = any(b.prepared for _, b in gone)
    yield _finding(
        rank,
        optimizer,
        window,
        rule="lost-gradients",
        severity="error" if prepared else "warning",
        expected="the gradients of every micro-batch of a window to be there until its step",
        found="gradients that one backward() had left, and that were None or zeros when the next one of the same "
        "window began, with no step between: the step is made on what came after",
        cause="the model is prepared anew between two micro-batches, which sets its gradients anew, too"
        if prepared
        else "something between two micro-batches sets gradients anew",
        advice="Do that between a step and the first micro-batch of the next window, or leave the gradients alone.",
        site=one.after,
        times=len({w.number for w, _ in gone}),
    )


def _zeroed(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """zero_grad() in every micro-step, of a program that divides the loss by as many as make a step."""
    zeroed = [w for w in windows if w.between and w.alone and all(b.became == "zeroed" for b in w.between)]
    if len(zeroed) < ENOUGH or any(w.between and w not in zeroed for w in windows):
        return
    if any(one.after != one.before for w in zeroed for one in w.between):
        return
    if len({w.backwards for w in zeroed}) == 1 and all(declared.divided_by(w) == w.backwards for w in zeroed):
        yield _finding(
            rank,
            optimizer,
            zeroed[0],
            rule="zero-grad-within-window",
            severity="warning",
            expected=f"the gradients of {zeroed[0].backwards} micro-batches to be added up for a step",
            found="zero_grad() between any two of them: each step is made on the last micro-batch alone",
            cause="zero_grad() is called in every micro-step",
            advice="Call zero_grad() once after each step.",
            times=len(zeroed),
        )


def _of_stage(rank: Rank, optimizer: int, windows: Windows, number: int) -> Finding:
    """zero_grad() in every micro-batch, on a stage of which another one adds them up."""
    return _finding(
        rank,
        optimizer,
        windows[0],
        rule="zeroing-on-one-stage",
        severity="warning",
        expected=f"the gradients of {number} micro-batches to be added up for a step, as the rank with the loss does",
        found="zero_grad() between any two of them on this rank: each of its steps is made on the last one alone",
        cause="zero_grad() is called in every micro-batch",
        advice="Call zero_grad() once after each step.",
        times=len(windows),
    )


def _overwritten(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """What a reduction has given replaces what was there."""
    found = [(w, one) for w in windows for one in w.between if one.became == "overwritten" and w.alone]
    if len({w.number for w, _ in found}) < 2:
        return
    window, one = found[0]
    yield _finding(
        rank,
        optimizer,
        window,
        rule="overwritten-gradients",
        subject=_name(rank, window, one.place),
        expected="what is reduced after a micro-batch to be added to the gradient of those before",
        found=f"the gradient of {_name(rank, window, one.place)} to be what the last reduction has given, and nothing "
        f"else: of {window.backwards} backward() calls, one goes into the step",
        cause="the result of the reduction is copied or assigned over the gradient of the micro-batches before",
        advice="Add it (grad += reduced), and zero the gradient after the step.",
        site=window.backward_site,
        times=len({w.number for w, _ in found}),
    )


def _left_over(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """Each step is made on the gradients of all windows before it, too: nobody zeroes them."""
    told = [one for one in windows if one.number > 0]
    if len(told) < ENOUGH or not all(one.leftover and one.as_left for one in told):
        return
    yield _finding(
        rank,
        optimizer,
        told[0],
        rule="missing-zero-grad",
        severity="warning",
        expected="the gradients that a step was made on to be gone when the next window begins",
        found=f"them to be added to in each of {len(told)} windows, and stepped on again: every step is made on the "
        "sum of all gradients so far",
        cause="zero_grad() is not called for this optimizer, as where it is called for another one alone",
        advice="Call zero_grad() of every optimizer once after its step; accept it, where the sum is meant.",
        times=len(told),
    )


def _unreduced(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """A step in a stretch of micro-batches that are not to be reduced yet."""
    found = [one for one in windows if one.unreduced]
    if len(found) < 2:
        return
    yield _finding(
        rank,
        optimizer,
        found[0],
        rule="step-without-reduction",
        expected="a step after the last micro-batch of a window, whose backward() reduces the gradients",
        found=f"{count(len(found), 'step')} without any: in each backward() before them, reductions were switched off",
        cause="no_sync() or set_requires_gradient_sync(False) is in force where the optimizer steps",
        advice="Call set_requires_gradient_sync(True), or leave no_sync(), before the last micro-batch of a window.",
        times=len(found),
    )


_PARTS: tuple[Callable[[Rank, int, Windows], Iterator[Finding]], ...] = (
    _stepped,
    _rescaled,
    _lost,
    _zeroed,
    _overwritten,
    _left_over,
    _unreduced,
)


# --- words


def _name(rank: Rank, window: ev.Window, place: int) -> str:
    """The name of an optimizer's parameter, as it was at a step."""
    described = [one for one in rank.of(ev.Optimizer) if one.optimizer == window.optimizer and one.n < window.n]
    known = described[-1].parameters if described else []
    return known[place].name if place < len(known) else f"parameter {place}"


def _finding(
    rank: Rank,
    optimizer: int,
    window: ev.Window,
    *,
    rule: str,
    expected: str,
    found: str,
    cause: str,
    advice: str,
    times: int,
    subject: str = "the gradients",
    severity: str = "error",
    site: int | None = None,
) -> Finding:
    return Finding(
        rule=rule,
        severity="error" if severity == "error" else "warning",
        ranks=(rank.rank,),
        subject=subject,
        step=window.number,
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        where=rank.where(window.site if site is None else site),
        count=times,
        links=(f"optimizer {optimizer}",),
    )
