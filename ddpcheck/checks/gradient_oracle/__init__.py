"""``gradient-oracle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="the update equals that of one process on the whole global batch",
    order=160,
    unit="training",
    rules=(
        Rule("wrong-update", "an update differs from that of one process on the global batch"),
        Rule("wrong-micro-batch-count", "a step takes another number of micro-batches than the job asks for"),
        Rule("unused-micro-batches", "the last micro-batches go into no step"),
        Rule("training-too-short", "the training ends before its last epoch does"),
        Rule("change-outside-step", "parameters change outside of optimizer steps"),
        Rule("unrequested-cast", "the model is cast to a type that the job does not ask for"),
        Rule("precision-not-lowered", "forwards compute in a higher precision than the job asks for"),
    ),
)
