"""What one rank has done with files in a stretch of a test, in which it saves and loads."""

from __future__ import annotations

import msgspec

from ddpcheck.evidence.training_state import Failure
from ddpcheck.vocabulary.model import Struct


class Recorded(Struct, frozen=True, kw_only=True):
    """What one rank has done with files, and whether a call of it failed."""

    evidence: bytes
    """The frames of its records."""
    failure: Failure | None = None
    own: tuple[str, ...] = ()
    """The devices that the rank's modules were on before the load."""
    moved: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """What lay on another device after the load: its device before, and after."""
    folder: str = ""
    """The folder that was empty before the save; where there is no such folder, nothing."""
    there: tuple[str, ...] = ()
    """The files in it after the save, by their names in it."""


ASK_ALONE = "what it writes alone"


class Alone(Struct, frozen=True, kw_only=True):
    """What a copy of one rank has written out of sight."""

    names: tuple[str, ...] = ()
    """Of files, those included that it has renamed or removed again."""
    why_not: str = ""
    """Why this is not known."""
