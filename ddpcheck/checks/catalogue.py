"""Every invariant by its id: the names that assertions, the command, reports and documentation share."""

from __future__ import annotations

from typing import Literal

NOT_CHECKED: Literal["not-checked"] = "not-checked"
"""A status; and among a finding's links, that it says why there was nothing to judge."""

CHECKS: dict[str, str] = {
    "initial-broadcast": (
        "when DDP's constructor returns, and until the first optimizer step, all ranks hold the same parameters "
        "and buffers"
    ),
    "gradient-sync": "on entry to every optimizer step all ranks hold the same gradients",
    "gradient-oracle": "the update equals that of one process on the whole global batch",
    "parameter-sync": "after every optimizer step all ranks hold the same parameters",
    "buffer-sync": "buffers that are meant to agree do",
    "reducer-coverage": (
        "every parameter that an optimizer updates is reduced by a DDP module, its forward went through the wrapper, "
        "and each step was armed exactly once"
    ),
    "optimizer-sync": "optimizer state, learning rate and gradient scale are the same on all ranks",
    "shard-partition": (
        "within an epoch the ranks' samples, judged by content, are disjoint and cover the dataset (padding told apart)"
    ),
    "epoch-reshuffle": "a shuffled sampler gives another order in another epoch",
    "batch-count": (
        "all ranks yield the same number of batches: the one that dataset size, world size, batch size and "
        "drop_last imply"
    ),
    "collective-order": "all ranks issue the same collectives in the same order",
    "no-hang": "every rank keeps making progress",
    "rank-failure": "no rank fails; when one does, it is named as the root cause",
    "checkpoint-single-writer": "one rank writes a path",
    "checkpoint-atomic-save": "a kill at any moment of a save leaves the checkpoint before it whole",
    "checkpoint-read-after-write": (
        "no rank reads a checkpoint before its write is complete, none deletes it before the last read"
    ),
    "checkpoint-map-location": "a load keeps a rank on its own device",
    "checkpoint-load-complete": "a load leaves no parameter silently untouched",
    "resume-equivalence": "save, rebuild, load and go on equals never having stopped",
    "rng-independence": (
        "streams that must differ between ranks (dropout, augmentation) differ, streams that must agree (shuffling) "
        "agree"
    ),
    "metric-oracle": "a metric reduced over ranks equals that of one process on the same data",
    "device-placement": (
        "parameters, inputs and outputs are where they belong, and no two ranks share a device by accident"
    ),
    "process-hygiene": "groups are destroyed, and no process, thread, port or shared-memory parameter is left",
}
"""Each id, and when its invariant holds."""

ORACLES = ("gradient-oracle", "resume-equivalence", "metric-oracle")
"""What the run of one script cannot show: it takes a second run to compare it with."""

ASSERTIONS = {
    "initial-broadcast": ("assert_initial_broadcast", "assert_replicas_identical"),
    "gradient-sync": ("assert_gradients_identical",),
    "parameter-sync": ("assert_parameters_identical", "assert_replicas_identical"),
    "shard-partition": ("assert_shards_partition",),
    "epoch-reshuffle": ("assert_epochs_reshuffled",),
    "batch-count": ("assert_batch_count",),
    "checkpoint-single-writer": ("assert_single_writer", "assert_checkpoint_resumable"),
    "checkpoint-atomic-save": ("assert_atomic_save", "assert_checkpoint_resumable"),
    "checkpoint-read-after-write": ("assert_read_after_write", "assert_checkpoint_resumable"),
    "checkpoint-map-location": ("assert_map_location", "assert_checkpoint_resumable"),
    "checkpoint-load-complete": ("assert_load_complete", "assert_checkpoint_resumable"),
    "resume-equivalence": ("assert_resume_equivalent", "assert_checkpoint_resumable"),
    "device-placement": ("assert_device_placement",),
}
"""The assertions that hold an invariant inside a ``ddp`` test."""
