"""A training of two ranks, whole, killed, and gone on with from its checkpoint, written by hand."""

from __future__ import annotations

from ddpcheck.checks.checkpoint_atomic_save import conformance as saves
from ddpcheck.evidence import training_record
from tests.judging.trained import compared, killed, micro, situation, step, trace, trained

WHERE = situation("long", epochs=2)
NUMBERS = [[[0, 1], [2, 3], [4, 5], [6, 7]], [[10, 11], [12, 13], [14, 15], [16, 17]]]
"""The samples of each rank in two epochs of two steps."""


def training(rank=0, start=0, end=4, *, draws=None, masks=None, rate=None, shift=0.0, after=0.0, samples=None,
             gradient=1.0, returns=9.0, statistics="s"):  # fmt: skip
    """The steps of a rank from one to another: step n begins with parameters of n, and n is in all that it draws."""
    recorded = []
    for n in range(start, end):
        drawn = [10 * rank + n + 0.25, 10 * rank + n + 0.5] if draws is None else draws(n)
        masked = [bytes([rank, n])] if masks is None else masks(n)
        taken = NUMBERS[rank][n] if samples is None else samples(n)
        recorded += [
            micro(taken, draws=drawn, masks=masked, statistics=statistics),
            step(n + shift, n + 1 + shift + after, gradient=gradient, rate=0.1 - n / 100 if rate is None else rate),
        ]
    return trace(*recorded, returns=returns)


WHOLE = trained(WHERE, training(0), training(1), compared=[compared(worst=0.0, number=n) for n in range(4)])
KILLED = trained(WHERE, training(0, 0, 3, returns=None), training(1, 0, 3, returns=None), ended=[killed(0), killed(1)])


def resumed(*traces, **more):
    return trained(situation("resumed"), *traces, **more)


IN_SAVE = trained(
    WHERE, trace(training_record.Saving(), returns=None), trace(returns=None), ended=[killed(0), killed(1)]
)  # fmt: skip


def saved(*traces, by=IN_SAVE, **more):
    return saves.judge_save(WHOLE, by, resumed(*traces, **more))
