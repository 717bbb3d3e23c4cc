"""One process for all commands that need no interpreters of their own; with --long, all have them."""

from __future__ import annotations

import pytest
from forks import forking


@pytest.fixture(scope="session")
def forks(request):
    """The command in forks: see ``forks.Forks``; None, and so in interpreters, with --long."""
    if request.config.getoption("--long"):
        yield None
        return
    with forking() as forked:
        yield forked
