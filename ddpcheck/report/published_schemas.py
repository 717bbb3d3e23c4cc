"""The JSON schemas of the reports that programs read: what stands in each field, and which there always are."""

from __future__ import annotations

from importlib import resources

NAMES = {"run": "ddpcheck run --json", "tests": "pytest --ddp-report"}
"""What each schema describes."""


def schema_text(name: str) -> str:
    """The schema of one kind of report, as JSON."""
    file = resources.files("ddpcheck.report").joinpath("schemas").joinpath(f"{name}.schema.json")
    return file.read_text(encoding="utf-8")
