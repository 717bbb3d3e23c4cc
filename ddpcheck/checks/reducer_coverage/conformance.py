"""``reducer-coverage`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.suite_row import ANY, Row, watched

ROWS = (Row("reducer-coverage", (ANY,), watched("reducer-coverage"), least=2),)
