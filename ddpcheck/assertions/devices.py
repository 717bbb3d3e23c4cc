"""The assertion about devices, for any number of ranks and of devices in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ddpcheck.ranks.current_rank import current
from ddpcheck.ranks.judged_assertion import assert_judged

if TYPE_CHECKING:
    import torch

    Device = torch.device | str | int

_TITLE = "assert_device_placement"


def assert_device_placement(
    model: torch.nn.Module,
    *,
    inputs: Any = None,
    targets: Any = None,
    outputs: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    devices_per_rank: int | None = None,
    devices: Iterable[Device] | Callable[[int], Iterable[Device] | Device] | None = None,
    sharing: bool = False,
) -> None:
    """Fail unless the model, and what goes in and out, is on devices of this rank's own (`device-placement`).

    Each rank has ``ddp.device`` alone, unless something else is said:
    ``devices_per_rank=k`` gives rank r of a machine the GPUs ``k*r`` to
    ``k*r + k - 1``; ``devices`` lists those of this rank, in the order in
    which the model goes through them (a device twice, where it comes back to
    it), or is a function from the local rank to them. All must exist, and no
    two ranks may use one GPU, unless the runtime has given it to both, or
    ``sharing=True``.

    ``inputs``, ``targets`` and ``outputs`` are tensors, or containers and
    objects that hold them (of a PackedSequence its data), and judged where they
    are given: inputs are to be on the model's device (or on the CPU, where DDP
    or a model on several devices moves them), outputs on the last device of the
    model (in the order of ``devices``, else that of its last parameter),
    targets with the outputs. ``optimizer``'s
    state is to be on its parameters' devices. What else of a rank is on a GPU
    that belongs to another is told, too. A current device that is not the
    rank's own is a warning. Raises an AssertionError that names the
    parameters, the ranks, where they are and where they should be.
    """
    __tracebackhide__ = True
    from ddpcheck.probes import tensor_devices

    rank = current(f"ddpcheck.{_TITLE}")
    facts = tensor_devices.facts(
        model,
        given=rank.device,
        local_rank=rank.local_rank,
        batch={"inputs": inputs, "targets": targets, "outputs": outputs},
        optimizer=optimizer,
        devices_per_rank=devices_per_rank,
        devices=devices,
        sharing=sharing,
    )
    assert_judged("device-placement", _TITLE, facts)
