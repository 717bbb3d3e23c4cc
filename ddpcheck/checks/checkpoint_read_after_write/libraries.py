"""The fixes in the terms of training libraries."""

from __future__ import annotations

FIXES = {
    "dist.barrier()": {
        "accelerate": "`accelerator.wait_for_everyone()`",
        "lightning": "`trainer.strategy.barrier()`",
        "fabric": "`fabric.barrier()`",
        "transformers": "`trainer.accelerator.wait_for_everyone()`",
    }
}
