"""``shard-partition``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, Check, Rule

CHECK = Check(
    holds=("within an epoch the ranks' samples, judged by content, are disjoint and cover the dataset (padding aside)"),
    order=60,
    unit="pass",
    rules=(
        Rule("repeated-samples", "more samples are repeated in an epoch than padding explains"),
        Rule("missing-samples", "some samples of the dataset come to no rank in an epoch"),
        Rule("no-common-samples", "the same index is a different sample on each rank"),
        Rule("sampler-replaced", "training ignores the custom sampler that its loader was made with"),
        Rule("different-samples-in-replica", "ranks that share one model copy read different samples"),
        Rule(
            "different-samples-along-mesh",
            "ranks along a mesh dimension named for model parts read different samples",
            advisory=True,
        ),
        Rule("tokens-without-target", "tokens of a sequence that ranks share are a target on no rank"),
        Rule("sequence-tensor-not-sharded", "a mask or the positions of a sequence are not sharded with its tokens"),
        Rule("gathered-in-wrong-order", "parts of a sequence are joined in rank order, not in sequence order"),
        Rule("samples-read-again", "a resumed pass reads samples that the ranks had read before the save"),
        Rule("same-samples-twice", "two passes over one dataset give a rank the same samples in the same order"),
        Rule("same-inputs-on-ranks", "all ranks give their models the same inputs"),
        Rule("no-samples-read", "the loaders yield no sample on any rank"),
        Rule("different-dataset-sizes", "ranks have datasets of different sizes"),
        Rule("different-datasets", "ranks have datasets that hold different samples"),
        Rule("samples-out-of-order", "ranks take samples in another order than the unshuffled one"),
        Rule("unshuffled-samples", "the samples are not shuffled although job.shuffle is set"),
    ),
    rests_on=(*GROUPS, "collectives", "forwards", "backwards", "passes", "samplers", "parts of batches"),
    assertions=("assert_shards_partition",),
)
