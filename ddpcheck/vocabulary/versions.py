"""The versions that a report names."""

from __future__ import annotations

import platform
from importlib import metadata


def installed() -> dict[str, str | None]:
    """ddpcheck, torch and Python, without importing the packages; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for package in ("ddpcheck", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "python": platform.python_version()}
