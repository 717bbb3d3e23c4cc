"""Strategies for meshes of ranks, for placements on them, and for the parameters of a module as they are spread so.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Placements = tuple[Any, ...]
"""One of torch's placements for each dimension of a mesh."""


@dataclass(frozen=True)
class DrawnMesh:
    """The shape of a mesh over all ranks, and a name for each of its dimensions."""

    shape: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def make(self, device: torch.device | str = "cpu") -> DeviceMesh:
        """The mesh itself, over the ranks in their order; every rank has to call it, as it makes groups."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(torch.device(device).type, self.shape, mesh_dim_names=self.names)


def meshes(
    world_size: int, *, names: Sequence[str] = ("dp", "shard", "tp"), min_side: int = 1
) -> SearchStrategy[DrawnMesh]:
    """Shapes that have so many ranks, of up to as many dimensions as there are ``names``; one dimension first::

        @pytest.mark.ddp(world_size=4)
        @given(drawn=ds.meshes(4))
        def test_my_layout(ddp, drawn):
            mesh = drawn.make(ddp.device)

    Of several dimensions each has ``min_side`` ranks or more. Raises a
    ValueError for a world size or names that no mesh can have.
    """
    if world_size < 1 or isinstance(names, str) or not names or len(set(names)) != len(names) or min_side < 1:
        raise ValueError(
            f"meshes({world_size}, names={names!r}, min_side={min_side}): expected one rank or more, and a list of "
            "names, each another"
        )
    shapes = sorted(
        (
            shape
            for dims in range(1, len(names) + 1)
            for shape in _shapes(world_size, dims)
            if dims == 1 or min(shape) >= min_side
        ),
        key=lambda shape: (len(shape), shape),
    )
    return st.sampled_from([DrawnMesh(shape, tuple(names[: len(shape)])) for shape in shapes])


def _shapes(ranks: int, dims: int) -> Iterator[tuple[int, ...]]:
    """All ways to deal ranks out over so many dimensions."""
    if dims == 1:
        yield (ranks,)
        return
    for side in range(1, ranks + 1):
        if ranks % side == 0:
            yield from ((side, *rest) for rest in _shapes(ranks // side, dims - 1))


def placements(mesh: DrawnMesh | DeviceMesh | int, dims: int, *, partial: bool = False) -> SearchStrategy[Placements]:
    """A placement for each dimension of a mesh, of a tensor of so many dimensions: copies first, then shards::

        @pytest.mark.ddp(world_size=4)
        @given(data=st.data(), drawn=ds.meshes(4), tensor=ds.tensors(torch.float32, min_dims=1))
        def test_a_round_trip(ddp, data, drawn, tensor):
            mesh = drawn.make(ddp.device)
            spread = distribute_tensor(tensor, mesh, data.draw(ds.placements(mesh, tensor.ndim)))

    ``mesh`` may be its number of dimensions. Several of them may cut the same
    dimension of the tensor, and not evenly. With ``partial`` sums are among them that are still to be made.
    """
    known = _placements()
    each = st.sampled_from([
        known.Replicate(), *(known.Shard(dim) for dim in range(dims)), *([known.Partial()] if partial else []),
    ])  # fmt: skip
    return st.tuples(*[each] * (mesh if isinstance(mesh, int) else mesh.ndim))


def _placements() -> Any:
    import torch.distributed.tensor as known

    if not hasattr(known, "DTensor"):
        raise NotImplementedError(
            "placements need the DTensor of torch.distributed.tensor, which torch 2.5 and later have"
        )
    return known


@dataclass(frozen=True)
class DrawnSharding:
    """How the parameters of a module are spread over a mesh, by name; those without a name here are left plain."""

    placements: Mapping[str, Placements]

    def apply(self, module: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
        """Put DTensors in the place of the parameters, those of rank 0, and return the module.

        What was one parameter stays one. Every rank has to call it.
        """
        known = _placements()
        made: dict[int, torch.nn.Parameter] = {}
        for name, parameter in list(module.named_parameters()):
            if name in self.placements:
                spread = known.distribute_tensor(parameter.detach(), mesh, self.placements[name])
                made[id(parameter)] = torch.nn.Parameter(spread, requires_grad=parameter.requires_grad)
        for part in module.modules():
            for name, own in part.named_parameters(recurse=False, remove_duplicate=False):
                if id(own) in made:
                    setattr(part, name, made[id(own)])
        return module


@st.composite
def shardings(
    draw: st.DrawFn, module: torch.nn.Module, mesh: DrawnMesh | DeviceMesh | int, *, some: bool = False
) -> DrawnSharding:
    """How a module's parameters are spread over a mesh: all copied first, and then each as it is drawn::

        @pytest.mark.ddp(world_size=4)
        @given(data=st.data(), drawn=ds.meshes(4), module=ds.modules(kinds=("linear", "relu")))
        def test_my_checkpoint(ddp, data, drawn, module):
            mesh = drawn.make(ddp.device)
            data.draw(ds.shardings(module, mesh)).apply(module, mesh)

    With ``some`` there are parameters that are left as they are. A parameter
    that several layers share is drawn once, and stays shared.
    """
    found: dict[str, Placements] = {}
    for name, parameter in module.named_parameters():
        drawn = draw(placements(mesh, parameter.ndim))
        if not (some and draw(st.booleans())):  # after it, so that to leave one is no shorter example
            found[name] = drawn
    return DrawnSharding(found)
