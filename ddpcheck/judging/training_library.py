"""Which library has set up a training: its own functions are the fix there, in place of torch's."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite

_PACKAGES = {"accelerate": "accelerate", "lightning": "lightning", "pytorch_lightning": "lightning",
             "lightning_fabric": "fabric"}  # fmt: skip


def of_place(where: CallSite | None) -> str:
    """The library that a line's way has led through, the outermost one; empty for none."""
    for place in where.chain if where is not None else ():
        for one in place.through[:1]:
            package, _, function = one.partition(": ")
            if package == "lightning" and function.startswith(("Fabric", "_Fabric")):
                return "fabric"
            return _PACKAGES.get(package, package)
    return ""


@once_per_world
def of_world(world: World) -> str:
    """The library that has wrapped the model, or else has made the process group; empty for none."""
    for rank in world:
        sites = [*(one.site for one in rank.process.of(ev.Wrapped)), *(one.site for one in rank.process.of(ev.Joined))]
        for site in sites:
            if library := of_place(rank.where(site)):
                return library
    return ""
