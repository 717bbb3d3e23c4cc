"""What samplers and datasets know of the ranks, by the names that their authors give it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

RANKS = ("rank", "shard_id", "shard_index", "shard", "node_rank")
"""Of a sampler only the first three: it may have a rank among nodes, or a shard of another kind, beside its own."""
REPLICAS = ("num_replicas", "world_size", "num_shards", "world")


def whole_number(value: Any) -> int | None:
    """The value, where it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def held(owner: Any, name: str, otherwise: Any = None) -> Any:
    """What an object holds under a name, or its class, with none of the program's code being run to find it.

    A property, or ``__getattr__``, may do anything: of those only torch's own are asked.
    """
    if type(owner).__module__.startswith("torch."):
        return getattr(owner, name, otherwise)
    found = inspect.getattr_static(owner, name, otherwise)
    if isinstance(found, MemberDescriptorType):  # a slot
        return found.__get__(owner, type(owner)) if isinstance(owner, found.__objclass__) else otherwise
    return otherwise if hasattr(type(found), "__get__") and not callable(found) else found


def place_among(sampler: Any, read: Callable[[Any, str, Any], Any] = getattr) -> tuple[int, int] | None:
    """The rank that a sampler is made for, and of how many; None where it does not know of ranks."""
    rank, replicas = (
        next((n for name in names if (n := whole_number(read(sampler, name, None))) is not None), None)
        for names in (RANKS[:3], REPLICAS)
    )
    return (rank, replicas) if rank is not None and replicas is not None else None
