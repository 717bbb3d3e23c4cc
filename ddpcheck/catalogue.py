"""Every invariant by its id: the names that assertions, reports and documentation share."""

from __future__ import annotations

CHECKS: dict[str, str] = {
    "initial-broadcast": (
        "when DDP's constructor returns, and until the first optimizer step, all ranks hold the same parameters "
        "and buffers"
    ),
    "gradient-sync": "on entry to every optimizer step all ranks hold the same gradients",
    "parameter-sync": "after every optimizer step all ranks hold the same parameters",
    "shard-partition": (
        "within an epoch the ranks' samples, judged by content, are disjoint and cover the dataset (padding told apart)"
    ),
    "epoch-reshuffle": "a shuffled sampler gives another order in another epoch",
    "batch-count": (
        "all ranks yield the same number of batches: the one that dataset size, world size, batch size and "
        "drop_last imply"
    ),
}
"""Each id, and when its invariant holds."""
