"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.reducer_coverage.round_the_wrapper import AROUND_MICRO_STEPS, LEAVE_NO_SYNC, OF_THE_WRAPPER

FIXES = {
    AROUND_MICRO_STEPS: {
        "accelerate": "Put each micro-step into `with accelerator.accumulate(model):`, which reduces with the last.",
        "fabric": "Put each micro-step into `with fabric.no_backward_sync(model, enabled=...):`, enabled for all but "
        "the last.",
        "transformers": "Leave accumulation to the Trainer, which reduces with the last micro-step: "
        "`TrainingArguments(gradient_accumulation_steps=...)`.",
    },
    LEAVE_NO_SYNC: {
        "accelerate": "Put each micro-step into `with accelerator.accumulate(model):`, which reduces with the last.",
        "fabric": "Leave `fabric.no_backward_sync(model)` before the last forward of a step.",
        "transformers": "Leave accumulation to the Trainer, which reduces with the last micro-step: "
        "`TrainingArguments(gradient_accumulation_steps=...)`.",
    },
    OF_THE_WRAPPER: {
        "accelerate": (
            "Compute the loss from the output of what `accelerator.prepare(model)` gave back: model(x), and not "
            "`accelerator.unwrap_model(model)(x)`."
        ),
        "fabric": "Compute the loss from the output of what `fabric.setup(model)` gave back: model(x), and not "
        "model.module(x).",
        "transformers": (
            "Compute the loss in compute_loss() from the output of the `model` that it is given, and not of "
            "`self.model`."
        ),
    },
}
