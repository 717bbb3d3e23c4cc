"""A file that one rank did not find: what the others read at the same line, and whether the ranks agree on the file."""

from __future__ import annotations

import re
from pathlib import PurePath

from ddpcheck import evidence as ev
from ddpcheck.judging.known_errors import Explained
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.world_ending import Failure
from ddpcheck.vocabulary.wording import ranks_text

_PATH = re.compile(r"""No such file or directory: ['"]?(.+?)['"]?$""")


def elsewhere(world: World, failure: Failure) -> Explained | None:
    """What others read there; None where none of them has read another file."""
    raised = failure.raised
    if raised is None or raised.kind != "FileNotFoundError" or (match := _PATH.search(raised.message.strip())) is None:
        return None
    failed = next(rank for rank in world if rank.rank == failure.rank)
    wanted = PurePath(match[1])
    reads = {rank.rank: _read(rank, failed, raised.site) for rank in world}
    # Who goes through many files is somewhere else than the next one, by right.
    if reads.pop(failed.rank) or any(len(paths) > 1 for paths in reads.values()):
        return None
    read = {rank: paths[0] for rank, paths in reads.items() if paths}
    others = {rank: path for rank, path in read.items() if path.name != wanted.name}
    if not others or len(others) < len(read):
        return None
    by_name = by_key((path.name, rank) for rank, path in others.items())
    found = "at this line " + ", ".join(f"{ranks_text(who)} read {name}" for name, who in by_name.items())
    alike = any(_without(path, rank) == _without(wanted, failed.rank) for rank, path in others.items())
    if alike or not all(str(path) in _written(world) for path in others.values()):
        return Explained(found=found, cause="", advice="")  # a file for each rank, as it seems, or data
    return Explained(
        found=found,
        cause=(
            "the ranks do not agree on which of the saved files to read: each of them chooses by a value of its own"
        ),
        advice=(
            "Let all ranks choose the same file: decide by a value that is all-reduced, or choose on rank 0 and "
            "broadcast the path (dist.broadcast_object_list)."
        ),
    )


def _read(rank: Rank, failed: Rank, site: int) -> list[PurePath]:
    """The files that a rank has read at the line at which another one failed."""
    where = failed.where(site)
    reads = [one for one in rank.of(ev.File) if one.op == "read" and one.existed and rank.where(one.site) == where]
    return [PurePath(path) for path in dict.fromkeys(one.path for one in reads)] if where is not None else []


def _written(world: World) -> set[str]:
    """The files that were saved in this run."""
    files = [one for _, one in world.of(ev.File)]
    return {one.path for one in files if one.op == "write"} | {one.target for one in files if one.op == "rename"}


def _without(path: PurePath, rank: int) -> str:
    """A name without the rank's own number."""
    return re.sub(rf"(?<!\d)0*{rank}(?!\d)", "RANK", path.name)
