"""Devices that are not there: CPU tensors that behave as if on GPUs."""

from __future__ import annotations

from ddpcheck.device_simulation.errors import NotSimulated
from ddpcheck.device_simulation.simulation import simulated_devices

__all__ = ["NotSimulated", "simulated_devices"]
