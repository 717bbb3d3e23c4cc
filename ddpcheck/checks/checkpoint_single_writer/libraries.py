"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.checkpoint_single_writer.run import ON_ONE

FIXES = {
    ON_ONE: {
        "accelerate": (
            "Write with `accelerator.save(state, path)`, which does so on the main process alone, or under "
            "`if accelerator.is_main_process:`."
        ),
        "lightning": (
            "Call `trainer.save_checkpoint(path)` on all ranks, which writes on rank 0 alone, or write under "
            "`if trainer.is_global_zero:`."
        ),
        "fabric": "Call `fabric.save(path, state)` on all ranks, which writes on rank 0 alone, or write under "
        "`if fabric.is_global_zero:`.",
        "transformers": (
            "Call `trainer.save_model(path)` on all processes, which writes on the main one alone, or write under "
            "`if trainer.is_world_process_zero():`; where nodes share the folder, leave "
            "`TrainingArguments(save_on_each_node=False)`, the default."
        ),
    }
}
