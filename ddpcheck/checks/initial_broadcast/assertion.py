"""``initial-broadcast`` at one line of a test."""

from __future__ import annotations

from functools import partial

from ddpcheck.checks import state_at_line
from ddpcheck.checks.state_at_line import StateRow

ROW = StateRow(
    rule="different-initial-state",
    noun="tensor",
    tensors="rank 0's parameters and buffers",
    advice="Load and initialise before the model is wrapped, or do the same on every rank.",
    advice_of_copies="Give all ranks the same weights before they are sharded: by the same seed, the same file, or a "
    "broadcast. distribute_tensor sends those of one rank; fully_shard and DTensor.from_local take each rank's own.",
    first_rank=True,
)
judge = partial(state_at_line.judge, ROW)
