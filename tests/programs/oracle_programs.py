"""The ``fit`` of every program that takes a second training to compare with, as ``resume_equivalence_faulty``."""

from __future__ import annotations

import importlib

from ddpcheck.checks.registry import checks, has_part

NAMES = [
    f"{check.replace('-', '_')}_{which}"
    for check in checks()
    if not has_part(check, "run")
    for which in ("faulty", "correct")
]

for name in NAMES:
    folder, _, which = name.rpartition("_")
    globals()[name] = importlib.import_module(f"fixtures.{folder}.{which}").fit
