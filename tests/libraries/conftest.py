"""These tests run where they are asked for: by `nox -s libraries`, or with this folder on pytest's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave them out of sessions of the whole suite, which would take minutes longer, or skip them one by one."""
    named = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    asked = any(path.resolve().is_relative_to(HERE) for path in named)
    return None if asked else True
