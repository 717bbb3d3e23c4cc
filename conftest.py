"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import InnerProject

pytest_plugins = ["tests.claims.plugin"]


@pytest.fixture
def project(tmp_path: Path) -> InnerProject:
    """A folder of tests that are run by a pytest session of their own."""
    return InnerProject(tmp_path / "project")
