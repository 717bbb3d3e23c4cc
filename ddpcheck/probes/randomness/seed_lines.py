"""Which line of the user's has last set each random state, and to what."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
import xxhash

from ddpcheck.evidence import NO_SITE, STATE
from ddpcheck.probes.digests.batch_fingerprints import head
from ddpcheck.probes.recording import signal_exceptions, user_lines
from ddpcheck.probes.recording.call_frames import caller
from ddpcheck.probes.recording.patching import around
from ddpcheck.vocabulary.frame_lines import line_of

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_WORKER = os.path.join("torch", "utils", "data", "_utils", "worker.py")

times = 0
"""How often a random state was set by the user's code."""
sets: Counter[str] = Counter()
"""The same, by the kind of stream."""
_last: dict[str, tuple[Sequence[user_lines.Line], str]] = {}
"""By the kind of stream: the stack, and a word for the seed or the state. A forked child still knows them."""
OFTEN = 100
"""Seedings after which only the line is known, and not who has called its function."""


def watch() -> None:
    """Take note of every seeding from now on."""
    around(torch, "manual_seed", _noting("torch", "cuda"))
    around(torch, "set_rng_state", _noting("torch", state=True))
    for name in ("manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all"):
        around(torch.cuda, name, _noting("cuda", state=name.startswith("set")))
    around(random, "seed", _noting("python"))
    around(random, "setstate", _noting("python", state=True))
    if "numpy" in sys.modules:  # which loads this part of itself when it is first asked for, too late for us
        with suppress(Exception):
            importlib.import_module("numpy.random")
    if "numpy.random" in sys.modules:
        around(sys.modules["numpy.random"], "seed", _noting("numpy"))
        around(sys.modules["numpy.random"], "set_state", _noting("numpy", state=True))


def last(kind: str) -> tuple[int, str]:
    """The site of the line that set this kind of stream last, and what to; no site where no line is known."""
    found = _last.get(kind)
    return (user_lines.chained(found[0]), found[1]) if found is not None else (NO_SITE, "")


def _noting(*kinds: str, state: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            _note(kinds, [*args, *kwargs.values()], caller(), state)
            return result

        return seed

    return make


def _note(kinds: tuple[str, ...], given: list[Any], frame: FrameType, state: bool) -> None:
    global times
    file = frame.f_code.co_filename
    if file.endswith(_WORKER):  # a worker that torch seeds: by the base seed, and not by a line
        for kind in kinds:
            _last.pop(kind, None)
    if file.startswith(_TORCH):  # states that are put back
        return
    users = user_lines.users_frame(frame)
    if users is None:
        return
    times += 1
    line = user_lines.lines_of(frame) if times <= OFTEN else [(users.f_code, line_of(users))]
    for kind in kinds:
        sets[kind] += 1
        word = _word(given[0]) if given else ""
        _last[kind] = (line, f"{STATE}{word}" if state and word else word)


def _word(seed: Any) -> str:
    """The same for the same seed or state in every process; empty where it is nobody's."""
    try:
        if seed is None:
            return ""
        if isinstance(seed, int):
            return str(seed)
        if isinstance(seed, torch.Tensor):
            return head(seed, 8192).hex()
        if hasattr(seed, "tobytes"):
            return xxhash.xxh3_64_hexdigest(seed.tobytes())
        return xxhash.xxh3_64_hexdigest(repr(seed).encode())
    except Exception as error:  # an object without a representation
        signal_exceptions.let_through(error)
        return ""
