"""Where the parameters of a wrapped module really are: which GPU, and which shared memory."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import Placed
from ddpcheck.gpus import hardware_names
from ddpcheck.gpus.allotment import SHARING_VARIABLE
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.files import paths
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.patching import around

MOST = 1_000
"""Parameters in shared memory that are told of."""


def watch() -> None:
    """Record it for every wrapper from now on."""
    around(DistributedDataParallel, "__init__", _around_init)


def _around_init(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        writer = recorder.current()
        wrapper = WRAPPERS.all.get(self)
        if writer is None or wrapper is None:
            return
        try:
            parameters = dict(self.module.named_parameters())
            hardware = {
                device: _hardware(device)
                for device in sorted({str(p.device) for p in parameters.values() if p.device.type == "cuda"})
            }
            memory = _memory({n: p for n, p in parameters.items() if readable_memory.is_shared(p)})
        except Exception as error:  # a class of the user's own may do anything when it is looked at
            signal_exceptions.let_through(error)
            return
        if hardware or memory:
            writer.write(
                Placed(
                    **writer.next(),
                    wrapper=wrapper.number,
                    hardware=hardware,
                    memory=memory,
                    sharing=os.environ.get(SHARING_VARIABLE, "") not in ("", "0"),
                )
            )

    return __init__


def _hardware(device: str) -> str:
    """What names a GPU itself; empty where it cannot be known."""
    try:
        known = torch.cuda.get_device_properties(torch.device(device))
    except NotImplementedError:  # simulated devices have no properties; all ranks see the same ones by the same number
        return f"simulated {device}"
    return hardware_names.name_here(torch.device(device).index or 0, known)


def _memory(shared: dict[str, torch.Tensor]) -> dict[str, str]:
    """The memory that each of these lies in, as the system knows it: the same for all processes that share it."""
    if not shared:
        return {}
    spans = []
    with paths.Busy(), open("/proc/self/maps") as maps:
        for line in maps:
            span, _, _, device, inode, *_ = line.split(maxsplit=5)
            if inode != "0":
                start, _, end = span.partition("-")
                spans.append((int(start, 16), int(end, 16), f"{device}:{inode}"))
    found = {}
    for name, tensor in list(shared.items())[:MOST]:
        place = tensor.data_ptr()
        found[name] = next((f"{key}+{place - start}" for start, end, key in spans if start <= place < end), "")
    return {name: key for name, key in found.items() if key}
