"""Where did the first number come up that is not finite? Judge of finite-values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ddpcheck.checks.rows import Words
from ddpcheck.evidence import Origin
from ddpcheck.facts import finite
from ddpcheck.facts.finite import First, Moment
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class _Row(NamedTuple):
    rule: str
    expected: str
    found: str
    causes: Mapping[bool | Origin | None, Words]
    """By where a loss comes from, or by whether what came before a gradient was looked at, and was finite."""


_STOP = "Stop on all ranks alike at the first loss that is not finite; anomaly detection names its operation."
_LOOK = (
    "Run it with `ddpcheck run --oracle`, which looks at every step; torch.autograd.set_detect_anomaly(True) names the "
    "operation whose derivative is NaN."
)
_GUARD = "Guard the operation (an epsilon below the root, a clamp before the logarithm), not its result."
_GRADIENTS = "a gradient to be finite where the loss is, in every step that is made on it"
_PARAMETERS = "parameters to stay finite"
_ROWS: Mapping[Moment, _Row] = {
    "loss": _Row(
        "loss-not-finite",
        "every loss that a step is made on to be finite",
        "{value} on {ranks}{others}{since}{before}",
        {
            "input": Words(
                "what is computed or loaded before the model: a value that is missing in the batch, or another model's "
                "output",
                "Look at the samples of that batch, and at what is done with missing values in them.",
            ),
            "module": Words(
                "an operation of {module}: a logarithm of 0, a division by 0, a softmax over nothing, a number that is "
                "too large for 16 bits",
                f"{_GUARD} {_STOP}",
            ),
            "code": Words(
                "an operation in front of {module}: a mean over nothing, a division by 0, a softmax over a row that is "
                "masked throughout",
                f"{_GUARD} {_STOP}",
            ),
            "later": Words(
                "an operation whose result no module returns, as that of the loss: a logarithm of 0, a division by a "
                "count of 0, an average over nothing, a target that is not finite",
                f"{_GUARD} {_STOP}",
            ),
            None: Words("not known: where in that forward it came up was not seen", _LOOK),
        },
    ),
    "contribution": _Row(
        "gradient-not-finite",
        _GRADIENTS,
        "{lost} of {all} not finite on {ranks}{others}, before they were reduced: {names}{finite}",
        {
            True: Words(
                "an operation whose derivative is not finite there: the root or the norm of 0, a division, where() "
                "over a branch that is not finite",
                _GUARD,
            ),
            None: Words("not known: not every loss of the rank could be looked at", _STOP),
        },
    ),
    "gradient": _Row(
        "gradient-not-finite",
        _GRADIENTS,
        "{lost} of {all} not finite on {ranks} at the step{before}: {names}{finite}",
        {
            True: Words(
                "a sum over ranks or micro-batches that is too large for 16 bits, or what the program does with "
                "gradients before the step: a division by a norm or a count of 0",
                "Reduce and scale gradients in 32 bits; divide by no number that may be 0.",
            ),
            None: Words("not known: what backward() has made was not looked at", _LOOK),
        },
    ),
    "rate": _Row(
        "parameter-not-finite",
        _PARAMETERS,
        "a learning rate that is {value} on {ranks}, and parameters that are not finite since",
        {
            None: Words(
                "the schedule, at that step: a root or power of a negative number, a division by a number of steps "
                "that is 0",
                "Give the schedule as many steps as the optimizer makes, and look at what comes after its last one.",
            )
        },
    ),
    "step": _Row(
        "parameter-not-finite",
        _PARAMETERS,
        "{lost} of {all} not finite on {ranks} after a step on finite gradients: {names}{finite}",
        {
            None: Words(
                "the optimizer's own: an eps of 0, state that was loaded, a number that is too large for 16 bits",
                "Look at the optimizer's settings and state; keep both and the weights that it steps in 32 bits.",
            )
        },
    ),
    "between": _Row(
        "parameter-not-finite",
        _PARAMETERS,
        "{lost} of {all} not finite on {ranks} at the first forward of the step, and finite after the step before: "
        "{names}{finite}",
        {
            None: Words(
                "something has written to them since: a load, or an update of the program's own",
                "Look at what is loaded or written into the model between steps.",
            )
        },
    ),
    "begun": _Row(
        "parameter-not-finite",
        _PARAMETERS,
        "{lost} of {all} not finite on {ranks} at the first forward: {names}{finite}",
        {
            None: Words(
                "they have begun so: memory that nothing has filled, or values that were loaded",
                "Initialise every parameter, and look at what is loaded into the model.",
            )
        },
    ),
    "unseen": _Row(
        "parameter-not-finite",
        _PARAMETERS,
        "{lost} of {all} not finite on {ranks}, by this step at the latest: {names}{finite}",
        {None: Words("not known: the step before was not looked at", _LOOK)},
    ),
}
_BEFORE: Mapping[Moment | Origin, str] = {
    "input": "; what the model was called with had NaN in it",
    "module": "; the first that is not finite was made by {module}",
    "code": "; {module} was called with NaN that no module had made",
    "later": "; what modules of the model returned was finite",
    "gradient": ", and finite as backward() has made them",
}
_NONE = "ddpcheck saw no backward() from a loss that is one number, and that it could look at"


def judge(world: World) -> Judged:
    """Name the first loss, gradient or parameter that is not finite, unless all is finite again later.

    Each loss counts once for each rank.
    """
    found = finite.of(world)
    first = found.first
    checked = max(found.losses, first.times if first is not None else 0)
    return Judged(
        checked=checked,
        of=max(found.met, checked),
        findings=(_finding(first),) if first is not None else (),
        skipped_because="" if checked else _NONE,
    )


def _finding(first: First) -> Finding:
    row = _ROWS[first.moment]
    known = first.origin if first.moment == "loss" else first.before
    words = row.causes.get(known) or row.causes[None]
    what = "gradient" if first.moment in ("contribution", "gradient") else "parameter"
    texts = {
        "value": "NaN" if first.is_nan else "infinite",
        "ranks": ranks_text(first.ranks),
        "others": f" (finite on {ranks_text(first.finite_on)})" if first.finite_on else "",
        "since": f", and so is every loss of this line since ({count(first.times, 'loss', 'losses')})"
        if first.times > 1
        else "",
        "module": first.module,
        "lost": len(first.names),
        "all": count(len({*first.names, *first.finite}), what),
        "names": listing(first.names),
        "finite": f"; finite: {listing(kept)}" if (kept := [n for n in first.finite if n not in first.names]) else "",
    }
    before = _BEFORE.get(first.origin if first.moment == "loss" else first.moment, "") if known else ""
    return Finding(
        rule=row.rule,
        severity="error" if first.is_kept else "warning",
        ranks=first.ranks,
        subject="loss" if first.moment == "loss" else first.names[0] if first.names else what,
        step=first.number,
        expected=row.expected,
        found=row.found.format(before=before.format(**texts), **texts),
        cause=words.cause.format(**texts),
        advice=words.advice,
        where=first.line,
        count=first.times,
    )
