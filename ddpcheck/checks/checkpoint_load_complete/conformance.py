"""``checkpoint-load-complete`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import Row, watched

CHECK = "checkpoint-load-complete"

ROWS = (Row(CHECK, ("resumed",), watched(CHECK), least=2),)
