"""What all tests on GPUs have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpcheck.pytest_plugin import setting

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let warnings be warnings here: those of a driver or of NCCL differ from machine to machine."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> bool:
    """Whether the GPUs are simulated ones."""
    return setting(request.config, "ddp_simulate_gpus", int) is not None
