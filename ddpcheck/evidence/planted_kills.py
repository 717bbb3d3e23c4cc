"""What planted kills have left of a checkpoint."""

from __future__ import annotations

from typing import Literal

from ddpcheck.evidence.training_state import Failure
from ddpcheck.vocabulary.model import Struct

Left = Literal["old", "new", "other", "raised"]
"""What a load found after a kill: the state before the save, the one after it, neither of them, or an error."""


class Kill(Struct, frozen=True, kw_only=True):
    """One save that was killed, and what a load made of what it left."""

    moment: str
    """``after 512 of 1,024 bytes of model.pt`` …"""
    left: Left
    detail: str = ""


class Killed(Struct, frozen=True, kw_only=True):
    """What one rank has tried."""

    kills: tuple[Kill, ...] = ()
    not_tried: str = ""
    """Why no kill could be planted, where this rank writes."""
    unstopped: tuple[str, ...] = ()
    """Files whose writing no kill has stopped, at whichever byte."""
    together: tuple[Kill, ...] = ()
    """Of several ranks that write: what this rank finds where some of them have saved; the same moments on all."""
    failure: Failure | None = None
