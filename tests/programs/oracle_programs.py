"""The ``fit`` of every program that takes a second training to compare with, as ``resume_equivalence_faulty``."""

from __future__ import annotations

import importlib

from ddpcheck.checks.registry import checks, has_part

for check in checks():
    for which in ("faulty", "correct"):
        if not has_part(check, "run"):
            folder = check.replace("-", "_")
            globals()[f"{folder}_{which}"] = importlib.import_module(f"fixtures.{folder}.{which}").fit
