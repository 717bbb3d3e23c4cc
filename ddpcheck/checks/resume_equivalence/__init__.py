"""``resume-equivalence``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="save, rebuild, load and go on equals never having stopped",
    order=210,
    unit="step",
    rules=(
        Rule("resumed-training-differs", "training after a load differs from training that never stopped"),
        Rule("order-dependent-gradient-sums", "the resumed sums of gradients depend on the layout of DDP's buckets"),
        Rule("failed-resume", "the resumed training fails or hangs"),
        Rule("no-further-step", "the resumed training makes no further step"),
        Rule("unknown-start-parameters", "the resumed training starts with parameters of no earlier step"),
        Rule("restart-from-scratch", "the resumed training begins again before the first step"),
        Rule("different-buffers", "the resumed training starts with different buffers"),
        Rule("different-samples", "the resumed training takes different samples in a step"),
        Rule("different-random-numbers", "the resumed training draws different random numbers"),
        Rule("different-learning-rate", "the resumed training steps with a different learning rate"),
        Rule("different-parameters", "the resumed training enters a step with different parameters"),
        Rule("different-update", "the resumed training makes a different update in a step"),
        Rule("different-step-count", "the resumed training makes a different number of steps"),
    ),
    asserted_on=("held state", "buffers", "communication hooks"),
    assertions=("assert_resume_equivalent", "assert_checkpoint_resumable"),
)
