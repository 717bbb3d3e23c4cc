"""What torchrun runs, ``ddpcheck run`` runs: the same output, byte for byte, the same endings, and the same files."""

from __future__ import annotations

import pytest

from tests.command.differing import compared
from tests.command.surroundings import ALL, AT_ONCE, Surrounding


@pytest.mark.parametrize(
    "around", [pytest.param(one, id=one.name, marks=() if one is AT_ONCE else pytest.mark.long) for one in ALL]
)
def test_it_is_as_under_torchrun(tmp_path, around: Surrounding) -> None:
    """Each program in each surrounding, in interpreters of its own, as a user would start it."""
    assert compared(around, tmp_path) == []
