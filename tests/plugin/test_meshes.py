"""`ddp.mesh` in real ranks: which ranks are along which dimension, and what does not fit."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist


@pytest.mark.ddp(world_size=4)
def test_a_mesh_of_two_dimensions(ddp):
    """All ranks in their order, with names, and groups along each dimension."""
    mesh = ddp.mesh(2, -1, names=("replicate", "shard"))
    assert mesh.mesh_dim_names == ("replicate", "shard")
    assert mesh.device_type == "cpu"
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
    number = torch.tensor(ddp.rank)
    dist.all_reduce(number, group=mesh.get_group("replicate"))
    assert int(number) == 2 + 2 * (ddp.rank % 2)


@pytest.mark.ddp(world_size=[1, 3])
def test_a_mesh_without_a_shape(ddp):
    """It is one dimension, of all ranks."""
    mesh = ddp.mesh()
    assert (mesh.mesh.tolist(), mesh.mesh_dim_names) == (list(range(ddp.world_size)), None)


@pytest.mark.ddp
def test_a_shape_that_does_not_fit(ddp):
    """Every rank raises the same, and nobody waits: the group works as before."""
    with pytest.raises(ValueError, match=r"ddp.mesh\(2, 2\) has 4 ranks, and the test has 2: let all ranks be in it"):
        ddp.mesh(2, 2)
    dist.barrier()
