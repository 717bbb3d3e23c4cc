"""Ledger 6: what modules were given by a load, and what of them it has left as it was."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import states
from ddpcheck.facts.states import Piece, State
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

PREFIXES = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before the names."""
_DCP = "torch.distributed.checkpoint:"

Fit = Literal["prefix", "shape", "none", ""]
"""How what was given, and went nowhere, is what the module lacks: behind a prefix; by number and shapes; nothing fits
at all. Empty where it is not, or where the program looks at what the load has returned."""


class ModuleLoad(NamedTuple):
    """One load_state_dict of a module."""

    rank: Rank
    record: ev.StateLoaded
    lacking: tuple[str, ...]
    """Parameters and buffers that nothing was given for."""
    spare: tuple[str, ...]
    """Names that were given, and that it does not have."""
    fit: Fit
    prefix: str
    """What would make names fit."""
    is_filled: bool
    """Where it was given its own memory, torch.distributed.checkpoint had written to that before."""

    @property
    def where(self) -> CallSite | None:
        return self.rank.where(self.record.site)

    @property
    def is_partial(self) -> bool:
        """Whether something stayed as it was; whether it was to, is not known."""
        return bool(self.lacking) or (bool(self.record.itself) and not self.is_filled)


@once_per_world
def of(world: World) -> list[ModuleLoad]:
    """All of modules that have parameters or buffers."""
    return [_of(world, rank, s) for rank, s in world.of(ev.StateLoaded) if s.owner == "module" and s.total]


def _of(world: World, rank: Rank, load: ev.StateLoaded) -> ModuleLoad:
    where = rank.where(load.site)
    through = where is not None and any(one.startswith(_DCP) for one in where.through)
    since = max((s.n for s in rank.of(ev.Step) if s.n < load.n), default=0)
    filled = through or any(since < began.n < load.n for began in rank.of(ev.LoadBegan))
    lacking, kinds = tuple(load.missing), list(load.missing_kinds)
    spare_kinds = list(load.unexpected_kinds)
    if through and load.unexpected and not lacking:
        # What torch was not given for a module, it gives itself.
        lacking, kinds, spare_kinds = _not_in_file(world, rank, load)
    fit: Fit = ""
    prefix = next((one for one in PREFIXES if _fits(one, lacking, load.unexpected)), "")
    if lacking and load.unexpected and not load.strict:
        if prefix:
            fit = "prefix"
        elif load.thrown_away or through:
            fit = "none" if not load.fitting else "shape" if spare_kinds and _are_within(spare_kinds, kinds) else ""
    return ModuleLoad(rank, load, lacking, tuple(load.unexpected), fit, prefix, filled)


def _fits(prefix: str, lacking: tuple[str, ...], spare: list[str]) -> bool:
    missing, unexpected = set(lacking), set(spare)
    return any(prefix + one in unexpected for one in missing) or any(prefix + one in missing for one in unexpected)


def _are_within(spare: list[str], lacking: list[str]) -> bool:
    return not Counter(spare) - Counter(lacking)


def _not_in_file(world: World, rank: Rank, load: ev.StateLoaded) -> tuple[tuple[str, ...], list[str], list[str]]:
    """What a module has that the file before had not, with its shapes, and those of what the file had in its place."""
    files = [one for one in states.given_by_files(world) if one.rank is rank and one.record.n < load.n]
    after = [one for one in states.reads(world) if one.rank is rank and one.how == "module" and one.record.n > load.n]
    if not files or not after or after[0].record.site != load.site:
        return (), [], []
    given, held = _tensors(files[-1]), _tensors(after[0])
    lacking = {name: piece for name, piece in held.items() if name not in given}
    spare = {name: piece for name, piece in given.items() if name in load.unexpected}
    return tuple(lacking), list(map(_kind, lacking.values())), list(map(_kind, spare.values()))


def _tensors(state: State) -> dict[str, Piece]:
    return {one.entry.name: one for one in state.pieces if "[" in one.entry.kind}


def _kind(piece: Piece) -> str:
    return f"{piece.dtype}{list(piece.shape)}"
