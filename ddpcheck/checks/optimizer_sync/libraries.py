"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.optimizer_sync.schedulers import ONCE

FIXES = {
    ONCE: {
        "accelerate": (
            "A scheduler that went through `accelerator.prepare()` is stepped once for each process. Make the schedule "
            "as long as all processes' batches together, or step it once: "
            "`Accelerator(step_scheduler_with_optimizer=False)`, or leave it out of prepare()."
        )
    }
}
