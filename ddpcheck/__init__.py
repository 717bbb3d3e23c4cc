"""ddpcheck: know that distributed training is right. Importing it imports no torch.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpcheck.assertions import (
        AtRisk,
        assert_batch_count,
        assert_epochs_reshuffled,
        assert_gradients_identical,
        assert_initial_broadcast,
        assert_parameters_identical,
        assert_replicas_identical,
        assert_shards_partition,
    )
    from ddpcheck.ranks.current import OutsideRank, Violation

__all__ = [
    "AtRisk",
    "OutsideRank",
    "Violation",
    "assert_batch_count",
    "assert_epochs_reshuffled",
    "assert_gradients_identical",
    "assert_initial_broadcast",
    "assert_parameters_identical",
    "assert_replicas_identical",
    "assert_shards_partition",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ddpcheck' has no attribute {name!r}")
    from importlib import import_module

    home = "ddpcheck.ranks.current" if name in ("OutsideRank", "Violation") else "ddpcheck.assertions"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
