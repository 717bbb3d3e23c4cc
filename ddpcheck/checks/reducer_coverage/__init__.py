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
        Rule("outside-every-wrapper", "a parameter that the optimizer updates is in no wrapper"),
        Rule("left-out-of-reduction", "the program's own reduction leaves out a parameter that the optimizer updates"),
        Rule("forwards-without-sync", "every forward runs under no_sync(), and no other synchronisation was seen"),
        Rule("repeated-step", "an optimizer steps twice on the same gradients"),
        Rule("gradients-zeroed-before-step", "reduced gradients are gone when the optimizer steps"),
        Rule("accumulated-gradients-lost", "gradients of earlier micro-batches are gone before the step"),
        Rule("gradients-reduced-twice", "the program reduces gradients that DDP or FSDP has already reduced"),
        Rule("unknown-to-reducer", "DDP's reducer does not know a parameter that the optimizer updates"),
        Rule("reduction-not-prepared", "no forward through the wrapper prepared the reduction for a step"),
        Rule("no-sync-without-forward", "no_sync() is entered with no forward inside"),
        Rule("reduction-per-micro-batch", "accumulated gradients are reduced at every micro-batch", advisory=True),
        Rule("unreduced-beside-sharded", "gradients of plain parameters beside sharded ones are never reduced"),
        Rule("reduced-over-wrong-ranks", "gradients are added up over ranks that hold other parameters"),
        Rule("copies-never-reduced", "gradients of copies are never reduced, and the copies diverge"),
        Rule("different-bucket-order", "ranks fill a bucket with the same gradients in different orders"),
        Rule("separate-model-per-rank", "each rank trains its own model on a shard of one dataset"),
        Rule("separate-models-per-group", "groups of ranks train separate models on shards of one dataset"),
        Rule("owner-gradient-not-reduced", "an owner updates a parameter for all ranks with its own gradient alone"),
        Rule("weights-never-trained", "sharded weights of a module never change while its others train", advisory=True),
        Rule(
            "mesh-dimension-not-reduced",
            "copies along a mesh dimension are never reduced along it, and diverge",
            advisory=True,
        ),
    ),
    rests_on=(*GROUPS, *CALLS, "steps", "optimizers", "no_sync", "module calls", "parameter names", "held state"),
)
