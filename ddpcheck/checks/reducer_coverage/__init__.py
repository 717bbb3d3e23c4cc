"""``reducer-coverage``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import CALLS, GROUPS, Check, Rule

CHECK = Check(
    holds=(
        "every parameter that an optimizer updates is reduced by a DDP module, its forward went through "
        "the wrapper, and each step was armed exactly once"
    ),
    order=80,
    unit="window",
    rules=(
        Rule("crossed-reductions", "one collective reduces gradients of different parameters on different ranks"),
        Rule("optimizer-of-replaced-parameters", "an optimizer holds parameters that are in no module"),
        Rule("partial-gradients", "ranks that compute the same step on their own part of a gradient each"),
        Rule("reduced-over-wrong-ranks", "gradients are added up over ranks that hold other parameters"),
        Rule("owner-gradient-not-reduced", "an owner updates a parameter for all ranks with its own gradient alone"),
        Rule("left-out-of-reduction", "parameters are left out of what adds up all other gradients"),
        Rule("separate-models", "ranks, or groups of them, train models of their own on shards of one dataset"),
        Rule("copies-never-reduced", "gradients of what ranks began alike with are never added up", advisory=True),
        Rule("repeated-step", "an optimizer steps twice on the same gradients"),
        Rule("gradients-reduced-twice", "the program reduces gradients that DDP or FSDP has already reduced"),
        Rule("unknown-to-reducer", "DDP's reducer does not know a parameter that the optimizer updates"),
        Rule("reduction-not-prepared", "no forward through the wrapper prepared the reduction for a step"),
        Rule("no-sync-without-forward", "no_sync() is entered with no forward inside"),
        Rule("reduction-per-micro-batch", "accumulated gradients are reduced at every micro-batch", advisory=True),
        Rule("weights-never-trained", "sharded weights of a module never change while its others train", advisory=True),
    ),
    rests_on=(*GROUPS, *CALLS, "steps", "optimizers", "no_sync", "module calls", "parameter names", "held state"),
)
