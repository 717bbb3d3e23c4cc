"""The errors of the simulation: CUDA's own, and the one for what is not simulated."""

from __future__ import annotations

import torch

from ddpcheck.device_simulation import torch_messages


class NotSimulated(NotImplementedError):
    """Something of CUDA that ``simulated_devices`` does not simulate was used inside of it."""

    def __init__(self, what: str, instead: str = "Leave it out on simulated devices, or run this on a GPU.") -> None:
        super().__init__(f"{what}: ddpcheck.simulated_devices() does not simulate this. {instead}")


def version() -> tuple[int, int]:
    """The installed torch's, as far as wording depends on it."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def invalid_ordinal() -> RuntimeError:
    """CUDA's error for a device that does not exist, of the class that torch raises."""
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    error: RuntimeError = kind(torch_messages.invalid_ordinal(version()))
    return error
