"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.shard_partition.sampler_causes import UNAWARE_ADVICE

FIXES = {
    UNAWARE_ADVICE: {
        "accelerate": "Hand the DataLoader to `accelerator.prepare(loader)`, which shares its batches out to the "
        "processes.",
        "lightning": (
            "Leave `Trainer(use_distributed_sampler=True)`, the default, which gives the loaders that fit() gets a "
            "DistributedSampler; or give the DataLoader one yourself."
        ),
        "fabric": "Hand the DataLoader to `fabric.setup_dataloaders(loader)`, which gives it a DistributedSampler.",
        "transformers": "Return from get_train_dataloader() what `self.accelerator.prepare(loader)` gives back, which "
        "shares its batches out to the processes.",
    }
}
