"""What samplers and datasets know of the ranks, by the names that their authors give it."""

from __future__ import annotations

from typing import Any

RANKS = ("rank", "shard_id", "shard_index", "shard", "node_rank")
"""Of a sampler only the first three: it may have a rank among nodes, or a shard of another kind, beside its own."""
REPLICAS = ("num_replicas", "world_size", "num_shards", "world")


def whole_number(value: Any) -> int | None:
    """The value, where it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def place_among(sampler: Any) -> tuple[int, int] | None:
    """The rank that a sampler is made for, and of how many; None where it does not know of ranks."""
    rank, replicas = (
        next((n for name in names if (n := whole_number(getattr(sampler, name, None))) is not None), None)
        for names in (RANKS[:3], REPLICAS)
    )
    return (rank, replicas) if rank is not None and replicas is not None else None
