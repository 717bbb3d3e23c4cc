"""What a rank feels when another one is lost, and what is a failure of its own in the same class of torch's."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from ddpcheck.vocabulary.lost_peers import is_reaction

NCCL = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, {}, NCCL version 2.27.5\n{}: {}\nLast error:\n{}"
)
USAGE = ("invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage", "This usually reflects invalid …")
CUDA = ("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "ncclUnhandledCudaError", "Call to CUDA …")
ARGUMENT = ("invalid argument (run with NCCL_DEBUG=WARN for details)", "ncclInvalidArgument", "Invalid value …")
SYSTEM = ("unhandled system error (run with NCCL_DEBUG=INFO for details)", "ncclSystemError", "System call …")
REMOTE = (
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "A call failed possibly due to a network error or a remote process exiting prematurely.",
)


@pytest.mark.parametrize(
    "message",
    [
        NCCL.format(*USAGE, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"),
        NCCL.format(*CUDA, "Cuda failure 2 'out of memory'"),
        NCCL.format(*CUDA, "Cuda failure 700 'an illegal memory access was encountered'"),
        NCCL.format(*ARGUMENT, "AllReduce : invalid root 9"),
        NCCL.format(
            *SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-x (size 9): No space left on device"
        ),
        "Attempt to perform collective on tensor not on device passed to init_process_group",
    ],
)
def test_a_failure_of_the_ranks_own(message: str) -> None:
    assert not is_reaction(dist.DistBackendError(message))


@pytest.mark.parametrize(
    "error",
    [
        dist.DistBackendError(NCCL.format(*REMOTE, "socketProgress: Connection closed by remote peer")),
        dist.DistBackendError(NCCL.format(*SYSTEM, "socketStartConnect: Connect to peer failed : Connection refused")),
        dist.DistBackendError("NCCL communicator was aborted on rank 1."),
        dist.DistBackendError(
            "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key "
            "'0', but store->get('0') got error: Connection reset by peer"
        ),
        dist.DistNetworkError("The client socket has timed out: out of memory"),
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer"),
    ],
)
def test_what_another_rank_has_caused(error: Exception) -> None:
    assert is_reaction(error)


NCCL2 = "NCCL AllReduce failed: {}\nNCCL Last Error: {}"
"""What the default backend for NCCL says from torch 2.15 on."""


@pytest.mark.parametrize(
    ("message", "reaction"),
    [
        (NCCL2.format("unhandled system error (run with NCCL_DEBUG=INFO for details)", "Connect to peer failed"), True),
        (NCCL2.format("internal error - please report this issue to the NCCL developers", "no peer"), True),
        (NCCL2.format(REMOTE[0], "socketProgress: Connection closed by remote peer"), True),
        ("NCCL operation failed", True),
        ("Operation timed out after 20000 ms", True),
        (NCCL2.format(USAGE[0], "Duplicate GPU detected"), False),
        (NCCL2.format(ARGUMENT[0], "AllReduce : invalid root 9"), False),
        (NCCL2.format(CUDA[0], "Cuda failure 700 'an illegal memory access was encountered'"), False),
        (NCCL2.format(SYSTEM[0], "Error while creating shared memory segment: No space left on device"), False),
        ("Expected tensor on cuda:0 but found tensor on cuda:1", False),
    ],
)
def test_what_the_newer_backend_for_nccl_says(message: str, reaction: bool) -> None:
    """It raises RuntimeError for all of it."""
    assert is_reaction(RuntimeError(message)) == reaction


def test_other_errors() -> None:
    assert not is_reaction(ValueError("Connection reset"))
    assert not is_reaction(RuntimeError("no such thing"))
