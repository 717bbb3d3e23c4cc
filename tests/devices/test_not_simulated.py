"""What of CUDA is not simulated is refused by name."""

from __future__ import annotations

import pytest
import torch

import ddpcheck

NOT_SIMULATED = {
    "stream": "torch.cuda.Stream()",
    "current stream": "torch.cuda.current_stream()",
    "event": "torch.cuda.Event(enable_timing=True)",
    "graph": "torch.cuda.CUDAGraph()",
    "memory": "torch.cuda.memory_allocated()",
    "memory left": "torch.cuda.mem_get_info()",
    "properties": "torch.cuda.get_device_properties(0)",
    "autocast": "torch.autocast('cuda')",
    "old autocast": "torch.autocast(device_type='cuda', dtype=torch.bfloat16)",
    "generator": "torch.Generator(device='cuda')",
    "dlpack": "torch.zeros(1, device='cuda').__dlpack__()",
    "array interface": "torch.zeros(1, device='cuda').__cuda_array_interface__",
}


@pytest.mark.parametrize("name", NOT_SIMULATED)
def test_not_simulated(name: str) -> None:
    """One sentence names what was used; nothing else happens in silence."""
    with ddpcheck.simulated_devices(1), pytest.raises(ddpcheck.NotSimulated, match=r"does not simulate this\. .*GPU"):
        eval(NOT_SIMULATED[name], {"torch": torch})


def test_classes_stay_classes() -> None:
    """What is not simulated can still be asked for by type, as loaders do with generators."""
    with ddpcheck.simulated_devices(1):
        assert not isinstance(3, torch.cuda.Stream)
        assert isinstance(torch.default_generator, torch.Generator)
        assert torch.Generator().manual_seed(3).initial_seed() == 3
        with torch.autocast("cpu"), torch.autocast("cuda", enabled=False):
            assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.bfloat16


def test_kernels_of_gpus_alone() -> None:
    """An operator that the CPU lacks is reported as such; of tensors on the CPU, torch's own error is."""
    with ddpcheck.simulated_devices(1):
        with pytest.raises(ddpcheck.NotSimulated, match="batch_norm_stats, of which torch has a kernel for GPUs alone"):
            torch.batch_norm_stats(torch.ones(2, 3, device="cuda"), 1e-5)
        with pytest.raises(NotImplementedError, match="Could not run") as caught:
            torch.batch_norm_stats(torch.ones(2, 3), 1e-5)
        assert caught.type is NotImplementedError
