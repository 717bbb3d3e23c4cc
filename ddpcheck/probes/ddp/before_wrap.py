"""What the parameters of a module are until a wrapper makes them those of one rank."""

from __future__ import annotations

from typing import Any

from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording import recorder, signal_exceptions


def values_of(module: Any) -> dict[str, Any]:
    """What the wrapper's record says of them: their digests, and the places of constants."""
    try:
        with recorder.silence():
            parameters = list(module.parameters())
            unseen = {place for place, one in enumerate(parameters) if readable_memory.unseen(one)}
            filled = fast_digests.filled([None if p in unseen else one for p, one in enumerate(parameters)])
            return {"before": fast_digests.queued(parameters, but=unseen), "filled": Derived(_places, filled)}
    except Exception as error:  # what is no module is refused by the wrapper, and not by us
        signal_exceptions.let_through(error)
        return {}


def _places(filled: list[bool]) -> list[int]:
    return [place for place, one in enumerate(filled) if one]
