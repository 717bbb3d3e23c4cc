"""The ``fit`` of every program that takes a second training to compare with, as ``resume_equivalence_faulty``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ddpcheck.checks.registry import checks, has_part


def fits() -> dict[str, Callable[[Any], None]]:
    """By the name of the check's folder, and which of its two programs it is."""
    folders = [check.replace("-", "_") for check in checks() if not has_part(check, "run")]
    return {
        f"{folder}_{which}": importlib.import_module(f"fixtures.{folder}.{which}").fit
        for folder in folders
        for which in ("faulty", "correct")
    }


globals().update(fits())
