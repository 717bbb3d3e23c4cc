"""What a module's parameters are before a wrapper sends them."""

from __future__ import annotations

import torch

from ddpcheck.evidence import WIDTH
from ddpcheck.probes.ddp.before_wrap import values_of


def test_values_and_constants():
    """A digest each, in the order of the names; and which are one number."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    found = values_of(net)
    assert len(found["before"]) == 4 * WIDTH
    assert found["filled"] == [2, 3]
    assert values_of(net) == found
    with torch.no_grad():
        net[0].weight[0] += 1
    assert values_of(net)["before"] != found["before"]


def test_what_is_no_module():
    """The wrapper says so, and nobody else."""
    assert values_of(None) == {}
