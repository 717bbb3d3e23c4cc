"""What several judges ask of one world: worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ddpcheck.judging.world import World

T = TypeVar("T")


def once_per_world(function: Callable[[World], T]) -> Callable[[World], T]:
    """Remember what a function says of each world, as long as there is that world."""

    @wraps(function)
    def remembered(world: World) -> T:
        if remembered not in world.worked_out:
            world.worked_out[remembered] = function(world)
        found: T = world.worked_out[remembered]
        return found

    return remembered
