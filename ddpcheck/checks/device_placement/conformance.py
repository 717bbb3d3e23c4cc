"""``device-placement`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.on_devices import on_devices
from ddpcheck.trainings.suite_row import ANY, Row, watched

ROWS = (Row("device-placement", (ANY,), watched("device-placement"), least=2), on_devices("device-placement"))
