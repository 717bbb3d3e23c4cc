"""What torch says of itself and of the GPUs; asked in an interpreter of its own, which may crash or hang over it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck import seams
from ddpcheck.checks.missing_seams import asserted_on, resting_on
from ddpcheck.doctor.advice import innermost
from ddpcheck.doctor.child_processes import ending, running
from ddpcheck.doctor.facts import BACKENDS, Gpu, Seam, Torch, Unknown, asked
from ddpcheck.gpus import hardware_names
from ddpcheck.gpus.gpu_inventory import nccl_version
from ddpcheck.ranks.stacks import FATAL

_CODE = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ddpcheck.doctor import torch_build
torch_build.report()
"""
_LAST_LINES = 3


@contextlib.contextmanager
def asked_aside() -> Iterator[Callable[[float], Torch]]:
    """Begin to ask, in a process for this block; yields what waits for the answer until a time of the monotonic clock.

    All is unknown where there is no answer by then.
    """
    arguments = [sys.executable, "-X", "faulthandler", "-c", _CODE, json.dumps(sys.path)]
    with running(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield lambda until: _answer(process, until)


def _answer(process: subprocess.Popen[bytes], until: float) -> Torch:
    try:
        out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return unknown("torch did not answer in time")
    try:
        return msgspec.json.decode(out.strip().rpartition(b"\n")[2], type=Torch)
    except msgspec.DecodeError:
        return unknown(f"python {ending(process.returncode)}: {_last_words(err.decode(errors='replace'))}".rstrip(": "))


def _last_words(err: str) -> str:
    """The last lines on its stderr, and where it crashed, if it did."""
    said, fatal, dump = err.partition(FATAL)
    crash = [fatal + dump.partition("\n")[0], *(f"at {call}" for call in innermost(dump)[:1])] if fatal else []
    return " / ".join([*map(str.strip, said.strip().splitlines()[-_LAST_LINES:]), *crash])


def unknown(why: str) -> Torch:
    """Nothing is known, for one reason."""
    one = Unknown(why=why)
    return Torch(version=one, build=one, backends=one, nccl=one, gpus=one, driver=one, seams=one)


def file() -> str:
    """Where the torch lies that an import would find; it is not imported for that. Empty where there is none."""
    specs = (finder.find_spec("torch", None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    found = next(filter(None, specs), None)
    if found is None:
        return ""
    # A folder without __init__.py is a package, too.
    return found.origin or ", ".join(found.submodule_search_locations or ())


def report() -> None:
    """Print the facts, as the last line."""
    sys.stdout.write("\n" + msgspec.json.encode(examine()).decode() + "\n")


def examine() -> Torch:
    """Ask torch in this process; it may initialise CUDA."""
    return Torch(
        version=asked(_version),
        build=asked(_build),
        backends=asked(_backends),
        nccl=asked(_nccl),
        gpus=(gpus := asked(_gpus)),
        trouble="" if gpus else _trouble(),
        driver=asked(_driver),
        seams=asked(_seams),
    )


def _version() -> str:
    import torch

    return str(torch.__version__)


def _build() -> str:
    import torch

    for name, version in (("CUDA", torch.version.cuda), ("ROCm", getattr(torch.version, "hip", None))):
        if version:
            return f"{name} {version}"
    return "CPU only"


def _backends() -> tuple[str, ...]:
    import torch.distributed as dist

    if not dist.is_available():
        raise RuntimeError("this build of torch has no torch.distributed")
    has: Any = {name: getattr(dist, f"is_{name}_available", lambda: False) for name in BACKENDS}
    return tuple(name for name, available in has.items() if available())


def _nccl() -> tuple[int, ...] | None:
    import torch.distributed as dist

    if not dist.is_nccl_available():
        return None
    version = nccl_version()
    if not version:
        raise RuntimeError("the library that is loaded does not say its version")
    return version


def _gpus() -> tuple[Gpu, ...]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        known: Any = torch.cuda.get_device_properties(index)
        uuid = hardware_names.name_of(index, known)
        found.append(Gpu(name=known.name, memory=int(known.total_memory), uuid=uuid))
    return tuple(found)


def _seams() -> tuple[Seam, ...]:
    seams.import_homes()
    return tuple(
        Seam(
            name=one.name,
            purpose=seams.SIGHTS[one.sight],
            of=one.of,
            there=not one.is_missing,
            rests=tuple(dict.fromkeys((*resting_on(one.sight), *asserted_on(one.sight)))),
        )
        for one in seams.SEAMS
        if one.is_missing or one.is_there
    )


def _trouble() -> str:
    import torch

    if torch.version.cuda is None:
        return ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:
        return " ".join(str(error).split()).partition(". ")[0].rstrip(".")
    return ""


def _driver() -> str | None:
    """As the kernel's module says, or else nvidia-smi, which may hang (torch.utils.collect_env would wait for it)."""
    module = Path("/proc/driver/nvidia/version")
    if module.exists():
        found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", module.read_text())
        if found:
            return found[1]
    try:
        asked_for = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        out = subprocess.run(asked_for, capture_output=True, text=True, timeout=10, check=True).stdout
    except FileNotFoundError:
        return None
    return out.split("\n")[0].strip() or None
