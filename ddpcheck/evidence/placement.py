"""Where a rank's tensors are, and which devices are its own: the facts about placement, and how they are told."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddpcheck.vocabulary.model import Struct
from ddpcheck.vocabulary.wording import ranks_text

CHECK = "device-placement"
BATCH = ("inputs", "outputs", "targets")


class StateTensor(Struct, frozen=True, kw_only=True):
    """A tensor of an optimizer's state."""

    name: str
    device: str
    wanted: str
    """The device of the parameter that it belongs to."""


class Whereabouts(Struct, frozen=True, kw_only=True):
    """All that one rank says. Devices are written as torch does: ``cuda:1``, ``cpu``."""

    local_rank: int
    own: list[str]
    """The devices that are this rank's, in their order."""
    host: str = ""
    stated: str = ""
    """How the caller has named the devices; empty where nothing was said, and ``own`` is ``given`` alone."""
    order: list[str] = msgspec.field(default_factory=list)
    """The devices in the order in which the caller says that the model goes through them; empty where that was not
    said."""
    given: str = "cpu"
    """The device that the runtime has given to this rank."""
    sharing: bool = False
    """The caller says that ranks share devices on purpose."""
    visible: int | None = None
    """How many GPUs this rank sees; None where that is not known."""
    hardware: dict[str, str] = msgspec.field(default_factory=dict)
    """By device: what names the GPU itself, under whatever number this rank sees it."""
    current: str = ""
    """The current GPU; empty where no GPU is in use."""
    model: dict[str, str] = msgspec.field(default_factory=dict)
    """By parameter and buffer, in the module's order: its device."""
    device_ids: list[int] | None = None
    output_device: int | None = None
    batch: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By kind (inputs, outputs, targets), where it was given, and by tensor: its device."""
    state: list[StateTensor] = msgspec.field(default_factory=list)
    left: dict[str, str] = msgspec.field(default_factory=dict)
    """By device that is not this rank's own: what else of this rank is there."""
    wrong: str = ""
    """Why this rank could not say where things are."""

    def gpu(self, device: str) -> tuple[str, str]:
        """The machine, and what names the GPU there."""
        return self.host, self.hardware.get(device) or device


def is_gpu(device: str) -> bool:
    return device not in ("cpu", "meta")


def last_home(facts: Whereabouts) -> str:
    """Where the model ends; empty for an empty model.

    That is the last of the devices in their stated order which the model uses;
    without that order the device of its last parameter, or of its last buffer.
    """
    used = set(facts.model.values())
    parameters = [d for name, d in facts.model.items() if not name.endswith("(buffer)")]
    places = [d for d in facts.order if d in used] or parameters or list(facts.model.values())
    return places[-1] if places else ""


def by_rank(said: Mapping[int, str], most: int = 8) -> str:
    """``cuda:0 on ranks 1-3, cpu on rank 4``: what ranks say, those that say the same together."""
    groups: dict[str, list[int]] = {}
    for rank, text in sorted(said.items()):
        groups.setdefault(text, []).append(rank)
    parts = [f"{text} on {ranks_text(ranks)}" for text, ranks in groups.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")
