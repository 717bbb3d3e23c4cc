"""How many GPUs a test gets, and whether its ranks may share them: a plain function of the mark and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ddpcheck.marks.gpu_mark import GpuMark
from ddpcheck.vocabulary.model import Machine
from ddpcheck.vocabulary.wording import count

SHARING_NCCL = (2, 30)
"""The first NCCL that lets several ranks use one GPU."""

SHARING_TORCH = "2.14"
"""The first torch that ships it."""

SHARING_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"

CTAS = 16
"""Blocks of threads that NCCL's kernels may have on one GPU, those of all its ranks together.

Each rank that shares a GPU has channels of its own, and where a GPU, or an instance of one, has no room for the
blocks of all, NCCL hangs. Its documentation says that two ranks fit as it is, and to limit them where there are more.
The smallest instance of a GPU has about as many multiprocessors; a test needs no bandwidth.
"""


class Allotment(NamedTuple):
    """What a test gets."""

    gpus: int
    nccl_shares: bool = False
    """Several of its NCCL ranks are on one GPU."""


class Refusal(NamedTuple):
    """Why a test cannot run here."""

    reason: str
    fails: bool = False
    """The GPUs were promised, so that this is a failure."""


def only_real(mark: GpuMark) -> Refusal:
    """Why a test of this mark does not run on simulated devices."""
    return Refusal(f"it runs on real GPUs only, and these are simulated: {mark.real}")


def nobody_to_ask(error: Exception) -> Refusal:
    """Why a test fails where it is not known which GPUs there are: there may be all that it needs."""
    return Refusal(f"which GPUs there are could not be asked:\n{error}", fails=True)


def allot(
    title: str, world_size: int, backend: str, wanted: int | None, machine: Machine, required: int | None
) -> Allotment | Refusal:
    """The number of GPUs for a test of ``world_size`` ranks.

    ``title`` is the mark as a reader knows it. ``wanted`` is what the mark
    ``gpu`` names: exactly so many; without it, one for each rank, or as many as
    there are. ``required`` is the number that the runner promises to have:
    where there are fewer, what cannot run fails, and so does what would have
    to share GPUs for want of them.
    """
    there = len(machine.gpus)
    short = required is not None and there < required
    promised = f"; --ddp-require-gpus {required} was given" if short else ""
    sees = f"torch sees {count(there, 'GPU') if there else 'no GPU'}{machine.trouble and f' ({machine.trouble})'}"
    if there < (wanted or 1):
        return Refusal(f"{title} needs {count(wanted or 1, 'GPU')}, and {sees}{promised}", fails=short)
    gpus = wanted or min(world_size, there)
    if gpus >= world_size:
        return Allotment(gpus)
    ranks_on = f"{count(world_size, 'rank')} on {count(gpus, 'GPU')}"
    if wanted is None and short:
        return Refusal(f"{title} would have to run its {ranks_on}: {sees}{promised}", fails=True)
    if backend != "nccl":
        return Allotment(gpus)
    if machine.nccl < SHARING_NCCL:
        loaded = f"NCCL {version_text(machine.nccl)}" if machine.nccl else "an NCCL of unknown version"
        return Refusal(
            f"{title} would have to run its {ranks_on}, which needs NCCL {version_text(SHARING_NCCL)} or newer "
            f"(torch {SHARING_TORCH} and newer ship it), and {loaded} is loaded; {sees}"
        )
    return Allotment(gpus, nccl_shares=True)


def sharing_variables(ranks: int, gpus: int, caller: Mapping[str, str]) -> dict[str, str]:
    """What NCCL is told where ``ranks`` share ``gpus``; what the caller has set stays as it is.

    NVLS cannot be had with several ranks on a GPU. NCCL leaves it out by itself, and compares only some pairs of ranks
    in doing so: of three ranks on two GPUs it may miss that two are on one.
    """
    most = -(-ranks // gpus)
    wanted = {SHARING_VARIABLE: "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": str(max(1, CTAS // most))}
    return {name: value for name, value in wanted.items() if name not in caller}


def version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
