"""``token-weight``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, Check, Rule

CHECK = Check(
    holds=(
        "every valid token or sample enters an update with the same weight, whichever rank, micro-batch, stage or "
        "expert handled it"
    ),
    order=155,
    unit="window",
    rules=(
        Rule("unequal-rank-weights", "elements of the loss count differently on different ranks"),
        Rule("inconsistent-loss-parts", "one part of the loss is averaged per rank, another over all ranks"),
        Rule("unequal-micro-batch-weights", "elements of the loss count differently in different micro-batches"),
        Rule("undivided-micro-batches", "the means of micro-batches are added up without a division"),
        Rule("loss-off-by-factor", "the tokens of a step count several times too much or too little"),
        Rule("unequal-parameter-weights", "the same tokens count differently in two parameters of one model"),
        Rule("mean-off-by-factor", "elements of equally many on each rank count several times too much", advisory=True),
        Rule("parameter-off-by-factor", "a parameter is given several times what others are", advisory=True),
        Rule("undivided-token-sum", "the loss is a sum over a varying number of tokens"),
        Rule("missing-loss-factor", "one part of the loss lacks a factor that another part has"),
        Rule("short-last-window", "the losses of a short last window are divided as if it were full"),
        Rule("partial-window-divisor", "gradients of a window are divided by the elements of one micro-batch"),
    ),
    rests_on=(
        *GROUPS,
        "steps",
        "backwards",
        "contributions",
        "loss terms",
        "optimizers",
        "collectives",
        "no_sync",
        "module calls",
        "parameter names",
    ),
)
