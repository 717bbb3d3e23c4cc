"""Models of which the program reduces a part itself, while each rank has the rest for its own, such as experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import mesh_names, step_alignment
from ddpcheck.judging.data_ranks import models_of
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.tensor_kinds import shape_of
from ddpcheck.judging.world import Rank, World


class Shared(NamedTuple):
    """What ranks hold alike of models that are otherwise dealt out among them."""

    ranks: list[Rank]
    models: Mapping[Rank, set[int]]
    reduced: list[ev.Parameter]
    """The parameters whose gradients the program itself makes the same."""

    def is_of(self, buffer: ev.Held) -> bool:
        """Whether a buffer has a number for each row or column of such a parameter of its module.

        So has what counts or weighs all experts; what a rank keeps of its own
        ones has a number for each of these alone.
        """
        module, _, _ = buffer.name.rpartition(".")
        shape = shape_of(buffer.kind)
        within = [p for p in self.reduced if not module or p.path.startswith(f"{module}.")]
        return len(shape) == 1 and shape[0] > 1 and any(shape[0] in shape_of(p.kind) for p in within)


def shared(world: World) -> Iterator[Shared]:
    """Each optimizer of both: reduced parameters, and others that each rank began with numbers of its own for."""
    peers = mesh_names.peers(world)
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        rest = set(range(len(optimizer.described[0].parameters))) - {*ground.by_hand}
        # Along tensors or sequences, ranks compute each with its part of what one model makes of the same data.
        split = any({rank.rank for rank in optimizer.ranks} <= set(group) for group in peers)
        if ground.by_hand and rest and not ground.moved and not split and _are_own(optimizer, rest):
            reduced = [optimizer.described[0].parameters[place] for place in ground.by_hand]
            yield Shared(optimizer.ranks, models_of(optimizer), reduced)


def _are_own(optimizer: Aligned, places: set[int]) -> bool:
    """Whether each rank began with its own numbers there, but for what is filled with one."""
    drawn = [place for place in places if not all(one.parameters[place].filled for one in optimizer.described)]
    begun = [{step_alignment.at(one.values, place) for one in optimizer.described} for place in drawn]
    return bool(drawn) and all(len(each) == len(optimizer.described) for each in begun)
