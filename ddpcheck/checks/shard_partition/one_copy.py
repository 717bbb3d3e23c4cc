"""Ranks that hold one copy of a model among them: do they read the same samples?"""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck.facts.passes import Line, Pass, data_groups
from ddpcheck.judging import mesh_names
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

AT_LEAST = 4
"""Samples, of which none is on two ranks: fewer may be so by chance."""


def _peers(world: World) -> list[list[int]]:
    readers, _ = data_groups(world)
    return mesh_names.peers(world) if readers == mesh_names.readers(world) else []


def judge(world: World, lines: list[Line]) -> Iterator[Finding]:
    """Compare the first pass of each training loop on the ranks that lie along such dimensions of a mesh."""
    for line in lines:
        for group in _peers(world):
            passes = {rank: line.passes[rank][0] for rank in group if line.passes.get(rank)}
            if len(passes) < len(group) or not _have_nothing_in_common(passes):
                continue
            first = line.passes[group[0]][0]
            made = line.first.rank.where(first.loader.site) if first.loader is not None else None
            yield Finding(
                rule="different-samples-along-mesh",
                severity="warning",
                ranks=tuple(group),
                subject=f"the loader of {ranks_text(group)}",
                expected=f"ranks along {mesh_names.along(world)}, which hold one copy of the model among them, to read "
                "the same samples",
                found=f"no sample of the first pass on more than one of {ranks_text(group)}",
                cause="the loader deals the data out to all ranks, and not to the copies of the model",
                advice="Give the sampler the number of copies and the copy that the rank belongs to: num_replicas and "
                "rank of the data dimension of the mesh.",
                where=made or line.first.where,
                links=(line.link,),
            )
            break


def _have_nothing_in_common(passes: dict[int, Pass]) -> bool:
    """Whether each has samples, and none of them is another rank's as well."""
    each = [{one.print_ for one in its.samples if one.print_ is not None} for its in passes.values()]
    if any(len(prints) < AT_LEAST for prints in each):
        return False
    return len(set().union(*each)) == sum(map(len, each))
