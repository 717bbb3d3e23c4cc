"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.process_hygiene.run import DESTROY

FIXES = {
    DESTROY: {
        "accelerate": "Call `accelerator.end_training()` at the end of every process: it destroys the group.",
        "transformers": "Call `trainer.accelerator.end_training()` at the end of every process: it destroys the group.",
    }
}
