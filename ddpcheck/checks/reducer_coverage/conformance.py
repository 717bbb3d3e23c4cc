"""``reducer-coverage`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import ANY, Row, watched

CHECK = "reducer-coverage"

ROWS = (Row(CHECK, (ANY,), watched(CHECK), least=2),)
