"""``checkpoint-snapshot``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="what a save writes is the state at the moment it was called, and saving changes nothing",
    order=184,
    unit="save",
    rules=(
        Rule("change-during-save", "tensors change while a save still writes them"),
        Rule("wrong-tensor-name", "a tensor is saved under the name of another one"),
        Rule("step-for-state-dict", "reading an optimizer's state makes an optimizer step"),
    ),
    rests_on=("groups", "optimizers", "steps", "saves", "saved state", "asked state", "what is left"),
)
