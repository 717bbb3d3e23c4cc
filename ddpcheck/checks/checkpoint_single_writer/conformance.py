"""``checkpoint-single-writer`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import Row, watched

ROWS = (
    Row("checkpoint-single-writer", ("long",), watched("checkpoint-single-writer"), least=2),
    Row("checkpoint-single-writer:two-nodes", ("two-nodes",), watched("checkpoint-single-writer"), world_sizes=(4,)),
)
