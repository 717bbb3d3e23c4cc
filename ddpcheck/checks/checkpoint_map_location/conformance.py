"""``checkpoint-map-location`` over trainings, as the judge of a script's run sees them."""

from __future__ import annotations

from ddpcheck.trainings.on_devices import on_devices
from ddpcheck.trainings.suite_row import Row, watched

ROWS = (
    Row("checkpoint-map-location", ("resumed",), watched("checkpoint-map-location"), least=2),
    on_devices("checkpoint-map-location"),
)
