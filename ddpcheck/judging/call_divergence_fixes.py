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
        "transformers": (
            "Let every process make this call, and put under `if trainer.is_world_process_zero():` (in a callback, "
            "`state.is_world_process_zero`) only what is done with its result."
        ),
        "torchmetrics": (
            "Make this call on every rank: compute() gathers the states of all, and so does each call of a metric with "
            "`dist_sync_on_step=True`. Put under the condition only what is done with the result; a metric of one rank "
            "alone is built with `sync_on_compute=False`."
        ),
        "torch.distributed.checkpoint": (
            "Call save(), async_save() and load() of torch.distributed.checkpoint on every rank of the group: each "
            "writes or reads its own part. What one rank alone writes is for torch.save()."
        ),
    },
    EVALUATE: {
        "accelerate": (
            "Evaluate on all processes, and put the results together by `accelerator.gather_for_metrics()`; or on one "
            "with `accelerator.unwrap_model(model)`, under no_grad()."
        ),
        "transformers": "Call `trainer.evaluate()` on all processes, which gathers the results of all.",
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
        "transformers": (
            "Return from get_train_dataloader() what `self.accelerator.prepare(loader)` gives back, which evens the "
            "batches out; a stream has to give every process as many batches."
        ),
    },
}
"""By the usual fix, or a part of it, and by library."""
