"""``checkpoint-snapshot``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="what a save writes is the state at the moment it was called, and saving changes nothing",
    order=184,
    rests_on=("groups", "optimizers", "steps", "saves", "saved state", "asked state", "what is left"),
)
