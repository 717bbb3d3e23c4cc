"""What to do about calls that part, in the terms of the library that has set up the training."""

from __future__ import annotations

from ddpcheck.judging.call_divergence_causes import EVALUATE, FEWER_BATCHES, TAKE_OUT

FIXES = {
    TAKE_OUT: {
        "accelerate": (
            "Let every process make this call, and put under `if accelerator.is_main_process:` only what is done with "
            "its result."
        ),
        "lightning": (
            "Let every rank make this call, `self.log(..., sync_dist=True)` among them; a value of rank 0 alone is for "
            "`self.log(..., rank_zero_only=True)`, without sync_dist."
        ),
        "fabric": "Let every rank make this call, and put under `if fabric.is_global_zero:` only what is done with "
        "its result.",
    },
    EVALUATE: {
        "accelerate": (
            "Evaluate on all processes, and put the results together by `accelerator.gather_for_metrics()`; or on one "
            "with `accelerator.unwrap_model(model)`, under no_grad()."
        ),
    },
    FEWER_BATCHES: {
        "accelerate": (
            "Hand the DataLoader to `accelerator.prepare(loader)`, which evens the batches out (even_batches=True, the "
            "default), or train within `with accelerator.join_uneven_inputs([model]):`."
        ),
        "lightning": (
            "Leave `Trainer(use_distributed_sampler=True)`, the default, whose sampler pads; a stream has to give "
            "every rank as many batches."
        ),
        "fabric": "Hand the DataLoader to `fabric.setup_dataloaders(loader)`, whose sampler pads; a stream has to "
        "give every rank as many batches.",
    },
}
"""By the usual fix, or a part of it, and by library."""
