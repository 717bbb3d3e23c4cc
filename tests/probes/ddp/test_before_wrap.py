"""What a module's parameters are before a wrapper sends them."""

from __future__ import annotations

import copy

import torch

import ddpcheck
from ddpcheck.evidence import WIDTH
from ddpcheck.probes.ddp.before_wrap import values_of
from ddpcheck.probes.devices.awaited import told


def test_values_and_constants():
    """A digest each, in the order of the names; and which are one number."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    found = told(values_of(net))
    assert len(found["before"]) == 4 * WIDTH
    assert found["filled"] == [2, 3]
    assert told(values_of(net)) == found
    with ddpcheck.simulated_devices(1):
        assert told(values_of(copy.deepcopy(net).cuda()))["filled"] == [2, 3]
    with torch.no_grad():
        net[0].weight[0] += 1
    assert values_of(net)["before"] != found["before"]


def test_what_is_no_module():
    """The wrapper says so, and nobody else."""
    assert values_of(None) == {}
