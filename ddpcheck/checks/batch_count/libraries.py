"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.batch_count.causes import EVEN_OUT

FIXES = {
    EVEN_OUT: {
        "accelerate": (
            "hand the DataLoader to `accelerator.prepare(loader)`, which evens the batches out, or train within "
            "`with accelerator.join_uneven_inputs([model]):`."
        ),
        "lightning": "leave `Trainer(use_distributed_sampler=True)`, the default, whose sampler pads, or drop_last "
        "even the shards out.",
        "fabric": "hand the DataLoader to `fabric.setup_dataloaders(loader)`, whose sampler pads, or let drop_last "
        "even the shards out.",
        "transformers": (
            "return from get_train_dataloader() what `self.accelerator.prepare(loader)` gives back, which evens the "
            "batches out, or set `TrainingArguments(dataloader_drop_last=True)`."
        ),
    },
}
