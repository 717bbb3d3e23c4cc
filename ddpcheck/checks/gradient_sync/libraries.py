"""The fixes in the terms of training libraries: their own ways to clip, which all ranks go."""

from __future__ import annotations

from ddpcheck.checks.gradient_sync.run import CLIP_ALIKE

FIXES = {
    CLIP_ALIKE: {
        "accelerate": "clip them on all processes, by `accelerator.clip_grad_norm_(model.parameters(), max_norm)`",
        "lightning": "clip them by `Trainer(gradient_clip_val=...)`, which does so on all ranks",
        "fabric": "clip them on all ranks, by `fabric.clip_gradients(model, optimizer, max_norm=...)`",
        "transformers": "clip them by `TrainingArguments(max_grad_norm=...)`, which does so on all processes",
    }
}
