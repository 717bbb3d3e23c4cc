"""What GPUs this machine has for ranks, and which NCCL: asked in a child, so that this process stays clean.

A process that has initialised CUDA cannot be forked from, and to ask CUDA for
its devices is to initialise it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpcheck.gpus import hardware_names, visible_devices
from ddpcheck.vocabulary.model import Gpu, Machine

PATIENCE = 60.0
"""Seconds for the driver to answer; a broken one may never do."""


class NobodyToAsk(Exception):
    """The process that was to ask for the GPUs could not be started, or has ended; says how, and what it wrote."""


def look() -> Machine:
    """The GPUs that a rank would see in this environment, in CUDA's order; none where torch has no use for them."""
    import torch

    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return Machine(trouble="this build of torch is for the CPU alone")
    said = said_by_child(_describe)
    if said == _POISONED:
        said = said_by_interpreter()
    if not isinstance(said, dict):
        return Machine(trouble=f"the driver was asked, and {said}")
    names = visible_devices.tokens(os.environ.get(visible_devices.VARIABLE), len(said["gpus"]))
    keys = [key for key, _ in said["gpus"]]
    return Machine(
        gpus=tuple(
            # Instances of one GPU may be told under its UUID, all of them: that names none.
            Gpu(
                token=token,
                key=key if key and keys.count(key) == 1 else token,
                name=name,
                order=os.environ.get(visible_devices.ORDER, ""),
            )
            for token, (key, name) in zip(names, said["gpus"], strict=False)
        ),
        nccl=tuple(said["nccl"]),
        trouble=said["trouble"],
    )


_POISONED = "this process had been asked for CUDA's devices before"


def children_lack_cuda() -> bool:
    """Asked in a fork: whether its parent has initialised the driver, so that no fork of it can use CUDA."""
    import torch

    return bool(getattr(torch._C, "_cuda_isInBadFork", lambda: False)())


def _describe() -> dict[str, Any] | str:
    """Asked in the child: what names each GPU itself, its model, and the version of NCCL."""
    import torch

    if children_lack_cuda():
        return _POISONED
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = []
    for index in range(number):
        known = torch.cuda.get_device_properties(index)
        found.append((hardware_names.name_of(index, known), str(known.name)))
    trouble = "" if number or not caught else " ".join(str(caught[-1].message).split())[:200].rstrip(". ")
    return {"gpus": found, "nccl": nccl_version() if number else (), "trouble": trouble}


def nccl_version() -> tuple[int, ...]:
    """The version of the NCCL that is loaded, as ``(2, 30, 7)``; empty where it cannot be known.

    Not the one that torch was compiled with, which is what torch itself tells:
    a newer library may have been preloaded.
    """
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
    for where in (None, str(library)):  # the preloaded ones come first, as they do for torch
        with contextlib.suppress(OSError, AttributeError):
            number = ctypes.c_int()
            if ctypes.CDLL(where).ncclGetVersion(ctypes.byref(number)) == 0:
                return decoded(number.value)
    with contextlib.suppress(Exception):
        told: tuple[Any, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        return tuple(int(part) for part in told[:3])
    return ()


def decoded(number: int) -> tuple[int, ...]:
    """NCCL's one number for a version: 23007 is 2.30.7, and before 2.9 2708 was 2.7.8."""
    base = 10_000 if number >= 10_000 else 1_000
    return number // base, number % base // 100, number % 100


def said_by_interpreter() -> Any:
    """The same from an interpreter of its own, which takes seconds."""
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from ddpcheck.gpus import gpu_inventory as machine; print(json.dumps(machine._describe()))"
    )
    try:
        run = subprocess.run(
            [sys.executable, "-c", code, json.dumps(sys.path)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=True,
        )
        return json.loads(run.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return f"the interpreter that asked it failed ({type(error).__name__})"


def said_by_child(question: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What ``question`` returns in a fork of this process, as plain data; a clause of text where it gives nothing."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as answer:
                try:
                    json.dump(question(), answer)
                except Exception as error:
                    json.dump(f"raised {type(error).__name__}: {str(error).splitlines()[0][:200]}", answer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as answer:
        text = b""
        while select.select([answer], [], [], patience)[0]:
            part = answer.read(65536)
            if not part:
                break
            text += part
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"gave no answer in {patience:.0f} s"
    _, status = os.waitpid(pid, 0)
    try:
        return json.loads(text)
    except ValueError:
        how = f"was killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "left without an answer"
        return f"the process that asked it {how}"
