"""What is not where a probe rests on it: noted once, and written into every evidence file of the process."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ddpcheck import seams
from ddpcheck.evidence import Missing
from ddpcheck.probes.recording import recorder
from ddpcheck.seams import Seam

_noted: dict[str, Seam] = {}


def note(seam: Seam | None) -> None:
    """Take down that a seam is missing; of what is not declared as one, nothing."""
    if seam is None or not seam.is_needed or seam.name in _noted:
        return
    _noted[seam.name] = seam
    writer = recorder.always()
    if writer is not None:
        _write(writer, seam)


def look() -> None:
    """Note everything that is missing of what has been imported so far."""
    for seam in seams.missing():
        note(seam)


def write_all(writer: recorder.Recorder) -> None:
    """Say in a new file what is known to be missing."""
    for seam in _noted.values():
        _write(writer, seam)


def _write(writer: recorder.Recorder, seam: Seam) -> None:
    writer.write(Missing(**writer.next(), seam=seam.name, of=seam.of))


def attribute(one: Any, name: str, otherwise: Any) -> Any:
    """An attribute that a module has, or every object of a class; where it is missing, that is noted."""
    try:
        return getattr(one, name)
    except AttributeError:
        note(seams.find(one if isinstance(one, ModuleType) else type(one), name))
        return otherwise
