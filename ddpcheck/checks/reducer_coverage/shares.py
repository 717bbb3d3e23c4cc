"""The rules of reducer-coverage that follow from who has a share in what each step is made of."""

from __future__ import annotations

from ddpcheck.checks.rows import Words
from ddpcheck.checks.share_rows import ShareRow

_DIVERGE = (
    "{gradients} of copies to be those of {over} alone, in {steps} of {of} looked at, and the copies to diverge: "
    "{names}"
)
_ONE = "ranks that train on shards of one {dataset} to train one model"
_SEVERAL = "{models} models, of {over}, which nothing brings together, and which diverge: {names}"
ROWS = (
    ShareRow(
        rule="partial-gradients",
        patterns=("own", "some"),
        grounds=("computed",),
        expected="{holders}, on which the module of {name} read and made the same numbers, to step on the same sum",
        found="each of them to have computed another part of {gradients}, and to step on its own part alone: {names}",
        causes={
            "": Words(
                "what comes after this module is split over these ranks, and its backward leaves each of them with a "
                "part of the gradient that nothing adds up",
                "Add up the gradient where activations enter the split part (an all-reduce in the backward of what "
                "copies them there), or all-reduce these gradients before the step.",
            )
        },
    ),
    ShareRow(
        rule="reduction-not-prepared",
        patterns=("own",),
        grounds=("wrapper",),
        expected="gradients of wrapped parameters to be reduced over {holders} before each step",
        found="{gradients} of which each rank steps on its own alone, in {steps} of {of} looked at, and nothing to "
        "bring the parameters together: {names}",
        causes={
            "": Words(
                "every forward ran under no_sync(), or what reduces them was replaced",
                "If DDP is to reduce, leave no_sync() before the last forward of a step.",
            )
        },
    ),
    ShareRow(
        rule="reduced-over-wrong-ranks",
        patterns=("foreign",),
        grounds=("copies", "declared", "computed", "joined", "dealt", "observed", "ignored"),
        expected="gradients of a parameter to be added up over the ranks that have copies of it",
        found="{gradients} added up over {over}, which began with other values each, while {holders}, which began "
        "alike, are not brought together and diverge: {names}",
        causes={
            "": Words(
                "the group is that of the ranks with other experts or shards, and not of those with copies",
                "Reduce over the ranks that hold the same expert or shard: the other dimension of the mesh.",
            )
        },
    ),
    ShareRow(
        rule="owner-gradient-not-reduced",
        patterns=("owner",),
        grounds=("declared", "computed", "joined", "dealt", "observed"),
        expected="the gradient of a parameter that one rank steps for all to be added up over the ranks first",
        found="{parameters} with an owner each ({owners}), which steps it for {holders} on the gradient of its own "
        "batch; those that the other ranks have computed go nowhere: {names}",
        causes={
            "": Words(
                "the reduction to the owner is missing",
                "Reduce each gradient to its owner (reduce, reduce_scatter or all_reduce) before the step.",
            )
        },
    ),
    ShareRow(
        rule="left-out-of-reduction",
        patterns=("own", "some"),
        grounds=("declared", "joined"),
        expected="gradients of all parameters that {holders} began alike with to be added up over them, as others are",
        found=_DIVERGE,
        causes={
            "": Words(
                "they are in no wrapper, or what reduces the others leaves them out; or each rank is to own them",
                "Put them into what is wrapped or reduced, or average their gradients over these ranks before each "
                "step. Accept this where each rank is to train its own.",
            )
        },
    ),
    ShareRow(
        rule="separate-models",
        patterns=("own", "some"),
        grounds=("dealt",),
        severity="error",
        expected=_ONE,
        found=_SEVERAL,
        causes={
            "alone": Words(
                "the model is in no DistributedDataParallel, and the program does not average its gradients",
                "Wrap the model in DistributedDataParallel, or average its gradients over the ranks before each step.",
            )
        },
    ),
    ShareRow(
        rule="separate-models",
        patterns=("own", "some"),
        grounds=("dealt",),
        expected=_ONE,
        found=_SEVERAL,
        causes={
            "": Words(
                "the model was sharded or wrapped for a group, or a dimension of a mesh, that leaves other ranks out",
                "If it is to be one model, give it the ranks that the sampler deals out to: the whole mesh, or one "
                "with a dimension for replicas.",
            )
        },
    ),
    ShareRow(
        rule="crossed-reductions",
        patterns=("crossed",),
        severity="error",
        expected="what is added up over ranks to be gradients of the same parameter on all of them",
        found="{gradients} into which others were added, in {steps} of {of} looked at: {name} with that of {crossed}",
        causes={
            "": Words(
                "the ranks go through their parameters in another order, as through a set, or as gradients arrive",
                "Go through the parameters, or fill a bucket, in the same order on every rank: "
                "model.parameters(), or sorted by name.",
            )
        },
    ),
    ShareRow(
        rule="repeated-step",
        patterns=("again",),
        severity="error",
        expected="one optimizer step for each gradient that backward() has left",
        found="{steps} of the {of} looked at to be made once more, with no backward() between and on {earlier} times "
        "what the step before was made on: {names}",
        causes={
            "elsewhere": Words(
                "step() is called at two places in a turn of the loop, as where scaler.step(optimizer) calls "
                "optimizer.step(), too",
                "Call scaler.step(optimizer), or optimizer.step() without a scaler, once after each backward(); clip "
                "before it, and after scaler.unscale_(optimizer).",
            ),
            "": None,
        },
    ),
    ShareRow(
        rule="repeated-step",
        patterns=("again",),
        expected="one optimizer step for each gradient that backward() has left",
        found="{steps} of the {of} looked at to be made once more, with no backward() between and on {earlier} times "
        "what the step before was made on: {names}",
        causes={
            "": Words(
                "one line calls step() several times after one backward()",
                "Call it once after each backward(); accept this, if it is meant.",
            ),
        },
    ),
    ShareRow(
        rule="copies-never-reduced",
        patterns=("own", "some"),
        grounds=("observed", "constant", "ignored"),
        expected="gradients of what ranks began alike with to be added up over them, if these are copies",
        found=_DIVERGE,
        causes={
            "": Words(
                "each rank has computed them from its own part of the batch, the sequence or the heads, and nothing "
                "adds them up; or each is to train its own",
                "All-reduce these gradients over {holders} before each step, if these train one model.",
            )
        },
    ),
)
