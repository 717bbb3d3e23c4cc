"""``collective-order`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import ANY, Row, watched

ROWS = (Row("collective-order", (ANY,), watched("collective-order"), least=2),)
