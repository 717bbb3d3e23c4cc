"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.judging.uneven_batches import EVEN_OUT, JOIN

FIXES = {
    EVEN_OUT: {
        "accelerate": (
            "hand the DataLoader to `accelerator.prepare(loader)`, which evens the batches out, or train within "
            "`with accelerator.join_uneven_inputs([model]):`."
        ),
        "lightning": "leave `Trainer(use_distributed_sampler=True)`, the default, whose sampler pads the shards "
        "to one length.",
        "fabric": "hand the DataLoader to `fabric.setup_dataloaders(loader)`, whose sampler pads the shards to "
        "one length.",
        "transformers": (
            "return from get_train_dataloader() what `self.accelerator.prepare(loader)` gives back, which evens the "
            "batches out, or set `TrainingArguments(dataloader_drop_last=True)`."
        ),
    },
    JOIN: {
        "accelerate": "or train within `with accelerator.join_uneven_inputs([model]):`.",
        "lightning": "or end the epoch on all ranks after as many batches, by `Trainer(limit_train_batches=NUMBER)`.",
    },
}
