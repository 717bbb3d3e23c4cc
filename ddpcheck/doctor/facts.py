"""What an examination has found: the machine, its torch, and how the self-tests ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from ddpcheck.vocabulary.model import Struct

T = TypeVar("T")


BACKENDS = ("gloo", "nccl", "mpi", "ucc")
"""Those of torch.distributed."""


class Unknown(Struct, frozen=True, kw_only=True):
    """What could not be found out."""

    why: str


class Limit(Struct, frozen=True, kw_only=True):
    """How much there is of something, and how much of it is free."""

    total: int
    free: int


class Gpu(Struct, frozen=True, kw_only=True):
    name: str
    memory: int
    """Bytes."""
    uuid: str = ""


class Seam(Struct, frozen=True, kw_only=True):
    """A place that probes rest on, of torch or of Python."""

    name: str
    purpose: str
    """What a probe sees there."""
    of: str
    """Who should have it: ``torch 2.13.0``."""
    there: bool
    rests: tuple[str, ...]
    """The checks, and the assertions, that are not made where it is missing."""


class Torch(Struct, frozen=True, kw_only=True):
    """What torch says of itself and of the GPUs."""

    version: str | Unknown
    build: str | Unknown
    """``CPU only``, ``CUDA 12.6``, ``ROCm 6.2``."""
    backends: tuple[str, ...] | Unknown
    """Those of BACKENDS that this build has."""
    nccl: tuple[int, ...] | Unknown | None
    """The version of the NCCL that is loaded; None where there is none."""
    gpus: tuple[Gpu, ...] | Unknown
    trouble: str = ""
    """Why there are none, as CUDA tells it to a build that could use some."""
    driver: str | Unknown | None
    """The GPUs' driver; None where there is none."""
    seams: tuple[Seam, ...] | Unknown = ()
    """Those that this version should have."""


class Machine(Struct, frozen=True, kw_only=True):
    """What the system says."""

    python: str | Unknown
    system: str | Unknown
    cores: Limit | Unknown
    """``free`` are those that this process may use."""
    memory: Limit | Unknown
    """Bytes."""
    shared_memory: Limit | Unknown
    """Bytes of /dev/shm."""
    files: Limit | Unknown
    """File descriptors of one process."""
    loopback: str | Unknown
    """The interface over which ranks of one machine speak, and its address."""
    packages: dict[str, str | None] | Unknown


class SelfTest(Struct, frozen=True, kw_only=True):
    """One step of DDP in two ranks, under one backend, against the oracle."""

    backend: str
    device: str
    outcome: Literal["passed", "failed", "untestable"]
    seconds: float = 0.0
    text: str = ""
    """What failed, whole; or why it cannot be tested here, as a clause."""
    advice: str = ""

    @property
    def name(self) -> str:
        return f"{self.backend} on {'the CPU' if self.device == 'cpu' else 'GPUs'}"


class Stack(Struct, frozen=True, kw_only=True):
    """All self-tests."""

    tests: tuple[SelfTest, ...]
    ranks_start: str | Unknown
    """How ranks come to be here, and why."""
    seconds: float

    @property
    def healthy(self) -> bool:
        """Something was tested, and nothing failed."""
        outcomes = [test.outcome for test in self.tests]
        return "passed" in outcomes and "failed" not in outcomes


class Examination(Struct, frozen=True, kw_only=True):
    machine: Machine
    torch: Torch
    stack: Stack


def asked(question: Callable[[], T]) -> T | Unknown:
    """The answer; or why there is none, in one line. A machine may lack anything that is looked at."""
    try:
        return question()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return Unknown(why=f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__)
