"""Strategies for modules: with parameters and buffers, frozen and shared ones, the same on every rank.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import nn

KINDS = ("linear", "relu", "layernorm", "batchnorm", "dropout", "frozen", "shared")


class DrawnModule(nn.Sequential):
    """A chain of layers, and what goes into it."""

    features: int

    def inputs(self, batch_size: int, seed: int = 0) -> torch.Tensor:
        """A batch for this module: the same for the same seed, such as the rank's number."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(batch_size, self.features, generator=generator)


@st.composite
def modules(
    draw: st.DrawFn,
    *,
    max_layers: int = 4,
    max_features: int = 4,
    kinds: tuple[str, ...] = KINDS,
    seed: int | None = None,
) -> DrawnModule:
    """Modules that begin with a Linear, and go on with layers of these ``kinds``.

    ``frozen`` is a Linear whose parameters need no gradient, ``shared`` has the
    weight of an earlier one. Parameters are drawn by a seed, so that all ranks
    have the same; give a ``seed`` of a rank's own for others, inside of a body::

        @pytest.mark.ddp(world_size=2)
        @given(module=ds.modules())
        def test_step(ddp, module):
            model = ddp.wrap(module)
            model(module.inputs(4, seed=ddp.rank)).sum().backward()
            ddpcheck.assert_gradients_identical(model)
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"modules(kinds={kinds!r}): there are {', '.join(KINDS)}")
    features = draw(st.integers(1, max_features))
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=max_layers - 1)) if max_layers > 1 and kinds else []
    number = draw(st.integers(0, 100)) if seed is None else seed
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        first = nn.Linear(features, features)
        module = DrawnModule(first, *(_layer(kind, features, first) for kind in chosen))
    module.features = features
    return module


def _layer(kind: str, features: int, first: nn.Linear) -> nn.Module:
    match kind:
        case "relu":
            return nn.ReLU()
        case "layernorm":
            return nn.LayerNorm(features)
        case "batchnorm":
            return nn.BatchNorm1d(features)
        case "dropout":
            return nn.Dropout(0.5)
    linear = nn.Linear(features, features)
    if kind == "frozen":
        linear.requires_grad_(False)
    elif kind == "shared":
        linear.weight = first.weight
    return linear
