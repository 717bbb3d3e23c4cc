"""The random states of a process: looked at, replaced, and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ddpcheck.probes.digests.exact_digests import digest, digest_of_parts
from ddpcheck.probes.recording.unwatchable_moments import asleep


def _numpy() -> Any:
    return sys.modules.get("numpy.random")


def _gpus() -> range:
    # While a graph is captured, a generator of its device gives no state.
    used = torch.cuda.is_initialized() and not asleep()  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count()) if used else range(0)


def digests() -> dict[str, str]:
    """A digest of each global random state: torch's, Python's, numpy's if it is imported, and each GPU's."""
    found = {
        "torch": digest(torch.get_rng_state()),
        "random": digest_of_parts([repr(random.getstate()).encode()]),
    }
    numpy = _numpy()
    if numpy is not None:
        found["numpy"] = digest_of_parts([repr(_plain(numpy.get_state())).encode()])
    for gpu in _gpus():
        found[f"cuda:{gpu}"] = digest(torch.cuda.get_rng_state(gpu))
    return found


def _plain(state: Any) -> Any:
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)


def scramble(seed: int) -> None:
    """Begin all global random streams anew, as another process would that nobody has seeded."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = _numpy()
    if numpy is not None:
        numpy.seed(seed % 2**32)


@contextmanager
def put_back() -> Iterator[None]:
    """Afterwards all global random states are as they were before."""
    numpy = _numpy()
    before = torch.get_rng_state(), random.getstate(), numpy.get_state() if numpy is not None else None
    gpus = {gpu: torch.cuda.get_rng_state(gpu) for gpu in _gpus()}
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        if numpy is not None and before[2] is not None:
            numpy.set_state(before[2])
        for gpu, state in gpus.items():
            torch.cuda.set_rng_state(state, gpu)
