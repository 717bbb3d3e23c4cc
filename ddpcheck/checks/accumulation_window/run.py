"""Are gradients only added to, from the first micro-batch of a step to its last? Judge of accumulation-window."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.rows import Words
from ddpcheck.checks.share_rows import ShareRow, read_shares
from ddpcheck.facts import mixing
from ddpcheck.judging import step_alignment
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

Windows = list[ev.Window]

_LOST = "the gradients of every micro-batch of a window to be there until its step"
_FOUND = "{gradients} without any share of backward() {calls} of a window in the step, in {steps} of {of}: {names}"
_ONCE = "Call zero_grad() once after each step, and not between its micro-batches."
_SCALED = "gradients to be added to, and left as they are, until the last micro-batch of a step"
_UNEQUAL = "the backward() calls of one window to count by {shares} in its step, in {steps}: {names}"
ROWS = (
    ShareRow(
        rule="lost-gradients",
        patterns=("lost",),
        severity="error",
        expected=_LOST,
        found=_FOUND,
        causes={
            "prepared": Words(
                "the model is prepared anew between two micro-batches, which sets its gradients anew, too",
                "Do that between a step and the first micro-batch of the next window.",
            ),
        },
    ),
    ShareRow(
        rule="lost-gradients",
        patterns=("lost",),
        expected=_LOST,
        found=_FOUND,
        causes={
            "zeroed": Words("zero_grad() is called in every micro-step", _ONCE),
            "prepared": None,
            "overwritten": None,
            "": Words("something between two micro-batches sets gradients anew", _ONCE),
        },
    ),
    ShareRow(
        rule="rescaled-gradients",
        patterns=("unequal",),
        severity="error",
        expected=_SCALED,
        found=_UNEQUAL,
        causes={
            "clipped": Words(
                "gradients are clipped after every micro-batch, and not once before the step",
                "Clip once, after the last backward() of the window and before the step.",
            ),
        },
    ),
    ShareRow(
        rule="rescaled-gradients",
        patterns=("unequal",),
        expected=_SCALED,
        found=_UNEQUAL,
        causes={
            "": Words(
                "they are scaled, or added up over ranks, with every micro-batch, and not once before the step",
                "Do that once before the step, or to what each micro-batch adds before it is added.",
            ),
        },
    ),
    ShareRow(
        rule="missing-zero-grad",
        patterns=("earlier",),
        expected="the gradients that a step was made on to be gone when the next window begins",
        found="{earlier} times the gradient that the step before was made on in {gradients}, in {steps}: {names}",
        causes={
            "": Words(
                "zero_grad() is not called for this optimizer, as where it is called for another one alone",
                "Call zero_grad() of every optimizer once after its step; accept it, where the sum is meant.",
            ),
        },
    ),
)


def judge(world: World) -> Judged:
    """Work out by how much each backward() counts in a step, and follow what is switched off."""
    shares = read_shares(mixing.of(world), ROWS)
    findings: list[Finding] = []
    for finding in shares.findings:
        _add(findings, finding)
    for rank in world:
        for optimizer, windows in by_key((one.optimizer, one) for one in rank.of(ev.Window)).items():
            for part in (_overwritten, _unreduced):
                for one in part(rank, optimizer, windows):
                    _add(findings, one)
    own = max((one.count for one in findings), default=0)
    checked, made = step_alignment.coverage(world, shares.several, own)
    checked = max(checked, own)
    return Judged(
        checked=checked,
        of=made,
        findings=tuple(findings),
        skipped_because="ddpcheck did not see by how much each of several backward() calls counts in a step"
        if any(window.backwards > 1 for _, window in world.of(ev.Window))
        else "ddpcheck saw no step made of several backward() calls",
    )


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


# --- what steps copies in other memory, and what is switched off


def _overwritten(rank: Rank, optimizer: int, windows: Windows) -> Iterator[Finding]:
    """What a reduction has given replaces what was there."""
    found = [(w, one) for w in windows for one in w.between if one.became == "overwritten" and w.alone]
    if len({w.number for w, _ in found}) < 2:
        return
    window, _ = found[0]
    yield _finding(
        rank,
        optimizer,
        window,
        rule="overwritten-gradients",
        expected="what is reduced after a micro-batch to be added to the gradient of those before",
        found="gradients to be what the last reduction has given, and nothing else: of "
        f"{window.backwards} backward() calls, one goes into the step",
        cause="the result of the reduction is copied or assigned over the gradient of the micro-batches before",
        advice="Add it (grad += reduced), and zero the gradient after the step.",
        site=window.backward_site,
        times=len({w.number for w, _ in found}),
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


# --- words


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
    site: int | None = None,
) -> Finding:
    return Finding(
        rule=rule,
        ranks=(rank.rank,),
        subject="the gradients",
        step=window.number,
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        where=rank.where(window.site if site is None else site),
        count=times,
        links=(f"optimizer {optimizer}",),
    )
