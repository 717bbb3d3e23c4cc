"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.epoch_reshuffle.causes import SET_EPOCH

FIXES = {
    SET_EPOCH: {
        "accelerate": (
            "Hand the DataLoader to `accelerator.prepare(loader)`, which sets the epoch of its sampler in each pass, "
            "or call `loader.set_epoch(epoch)` on the one that it gave back."
        ),
        "lightning": (
            "Give fit() the DataLoader itself, with the sampler as `sampler=` (or within batch_sampler): Lightning "
            "calls set_epoch() on these in every epoch."
        ),
        "fabric": (
            "Hand the DataLoader to `fabric.setup_dataloaders(loader)`, which sets the epoch of its sampler in each "
            "pass."
        ),
        "transformers": (
            "Return from get_train_dataloader() what `self.accelerator.prepare(loader)` gives back: the Trainer calls "
            "its set_epoch() in every epoch."
        ),
    }
}
