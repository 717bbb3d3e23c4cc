"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.judging.known_errors import FIND_UNUSED

FIXES = {
    FIND_UNUSED: {
        "accelerate": (
            "Pass `Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])`"
        ),
        "lightning": 'Pass `Trainer(strategy="ddp_find_unused_parameters_true")`',
        "fabric": "Pass `Fabric(strategy=DDPStrategy(find_unused_parameters=True))`",
        "transformers": "Pass `TrainingArguments(ddp_find_unused_parameters=True)`",
    }
}
