"""The shape of a mesh over all ranks of a test: what was asked for, or one sentence on why that cannot be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpcheck.vocabulary.wording import count


def shape_of(asked: Sequence[int], names: Sequence[str], world_size: int) -> tuple[int, ...]:
    """The numbers of ranks along each dimension, with what -1 stands for.

    Raises a ValueError that is the same on every rank where they do not multiply to the world size.
    """
    shape = tuple(asked) or (-1,)
    shown = f"ddp.mesh({', '.join(map(str, asked))})"
    if any(isinstance(size, bool) or not isinstance(size, int) or size < -1 or size == 0 for size in shape):
        raise ValueError(f"{shown}: expected whole numbers of ranks, and -1 for what is left of them")
    if shape.count(-1) > 1:
        raise ValueError(f"{shown}: only one dimension can be -1")
    if names and (isinstance(names, str) or len(names) != len(shape) or len(set(names)) != len(names)):
        raise ValueError(
            f"{shown}: {names!r} names no {count(len(shape), 'dimension')}: expected a name of its own for each"
        )
    given = math.prod(size for size in shape if size != -1)
    if -1 in shape:
        if world_size % given:
            raise ValueError(
                f"{shown} does not fit the test's {count(world_size, 'rank')}: they cannot be dealt out so"
            )
        return tuple(world_size // given if size == -1 else size for size in shape)
    if given != world_size:
        raise ValueError(f"{shown} has {count(given, 'rank')}, and the test has {world_size}: let all ranks be in it")
    return shape
