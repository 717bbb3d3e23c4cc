"""What ranks are told to do in a situation, as it crosses to them."""

from __future__ import annotations

from ddpcheck.trainings.situations import Situation
from ddpcheck.vocabulary.model import Struct

RESULT = "comparison"
"""The file in which the oracle leaves what it has found."""


class Order(Struct, frozen=True, kw_only=True):
    """One training."""

    situation: Situation
    folder: str
    """Where what the ranks record goes."""
    checkpoints: str
    salt: int
    """What the unseeded random streams of this run begin from."""


class Request(Struct, frozen=True, kw_only=True):
    """One replay of what the ranks have recorded."""

    situation: Situation
    world_size: int
    folder: str
