"""Strategies for property-based tests of distributed code: sizes, loaders, modules, tensors, meshes and collectives.

    from ddpcheck import strategies as ds

Each shrinks to the smallest that there is: one rank, one sample, one layer, one
collective of one element. They need the extra ``hypothesis``, and torch.
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis  # noqa: F401 - for the sentence
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "ddpcheck.strategies needs hypothesis, which is not installed: pip install 'hypothesis>=6.131', "
        "or install ddpcheck with its extra `hypothesis`.",
        name="hypothesis",
    ) from None

from ddpcheck.properties.collective_strategies import Collective, collectives
from ddpcheck.properties.loader_strategies import LoaderSettings, SamplerSettings, loader_settings, sampler_settings
from ddpcheck.properties.mesh_strategies import DrawnMesh, DrawnSharding, meshes, placements, shardings
from ddpcheck.properties.module_strategies import DrawnModule, modules
from ddpcheck.properties.size_strategies import dataset_sizes, unequal_sizes, world_sizes
from ddpcheck.properties.tensor_strategies import dtypes, tensors, unequal_batches

__all__ = [
    "Collective",
    "DrawnMesh",
    "DrawnModule",
    "DrawnSharding",
    "LoaderSettings",
    "SamplerSettings",
    "collectives",
    "dataset_sizes",
    "dtypes",
    "loader_settings",
    "meshes",
    "modules",
    "placements",
    "sampler_settings",
    "shardings",
    "tensors",
    "unequal_batches",
    "unequal_sizes",
    "world_sizes",
]
