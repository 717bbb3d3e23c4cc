"""``checkpoint-load-complete`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import Row, watched

ROWS = (Row("checkpoint-load-complete", ("resumed",), watched("checkpoint-load-complete"), least=2),)
