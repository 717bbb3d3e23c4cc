"""``device-placement``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="parameters, inputs and outputs are where they belong, and no two ranks share a device by accident",
    order=10,
    rests_on=("groups", "wrappers", "devices"),
    asserted_on=("devices",),
    assertions=("assert_device_placement",),
)
