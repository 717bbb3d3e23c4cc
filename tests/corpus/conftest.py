"""One process for all programs of a file of tests."""

from __future__ import annotations

import pytest
from asking import asking


@pytest.fixture(scope="module")
def ask():
    """Send a request to the process, and get its answer: see ``rows.serve``."""
    with asking() as answers:
        yield answers
