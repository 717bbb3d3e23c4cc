"""``checkpoint-single-writer`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import Row, watched

CHECK = "checkpoint-single-writer"

ROWS = (
    Row(CHECK, ("long",), watched(CHECK), least=2),
    Row(f"{CHECK}:two-nodes", ("two-nodes",), watched(CHECK), world_sizes=(4,)),
)
