"""What checkpointed functions do when they run once more for backward(): what they draw, and the buffers they write.

Torch puts random states back for the second run, unless it is told not to; nothing puts back what was written. The
second run alone is looked at, and not the backward that it is made for, whose hooks may draw as well.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import torch

from ddpcheck.evidence import Recomputed
from ddpcheck.probes.digests.batch_fingerprints import head
from ddpcheck.probes.layouts import models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.randomness import seed_lines
from ddpcheck.probes.randomness.random_draws import Kind, of_torch
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import around, once_imported, shielded

CHECKPOINTS = "torch.utils.checkpoint"
FIRST = 256
"""Runs that are looked at, before it is powers of two: the blocks of one model have a line in common."""
ALWAYS = 8
"""So many of each line are on record whatever they did."""
_BYTES = 64 * 1024
"""Of a buffer that is looked at."""
_STATISTICS = "Norm"
"""In the names of classes whose buffers are moving averages: one more average of the same batch changes little."""
_FUNCTION = "run_function"
"""The attribute of torch's context of a reentrant checkpoint that keeps the function."""

Key = tuple[int, str]
"""A module, and the name of a buffer in it."""


class _Owners:
    """The modules that have buffers, of the models that were met."""

    models: list[int] = []  # noqa: RUF012
    all: list[tuple[str, weakref.ref[Any], list[str]]] = []  # noqa: RUF012
    written: set[Key] = set()  # noqa: RUF012
    """Buffers that were seen to be written in a second run: from then on their values are looked at."""
    seen: defaultdict[Key, dict[bytes, int]] = defaultdict(dict)  # noqa: RUF012
    """What these have held before some run, and before which one that was last."""


class _First:
    """What was there before a checkpointed function ran first."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.site = user_lines.here()
        self.early = _lines[self.site] < ALWAYS
        _lines[self.site] += 1
        self.random = of_torch()
        self.versions = {key: buffer._version for key, _, buffer in _buffers()}
        self.moment, self.values = _held()


class _Second:
    """What was there before it ran again."""

    def __init__(self, first: _First) -> None:
        self.first = first
        self.random: dict[Kind, bytes] = of_torch()
        self.versions = {key: buffer._version for key, _, buffer in _buffers()}
        self.sets = seed_lines.sets.copy()
        _, self.values = _held()

    def is_over(self, writer: recorder.Recorder) -> None:
        after = of_torch()
        # What sets a state itself may draw the same each time.
        drew = [
            kind
            for kind, state in self.random.items()
            if after.get(kind, state) != state and seed_lines.sets[kind] == self.sets[kind]
        ]
        apart = [kind for kind in drew if self.first.random.get(kind, self.random[kind]) != self.random[kind]]
        buffers = self._written()
        if drew or buffers or self.first.early:
            first = self.first
            record = Recomputed(
                **writer.next(), site=first.site, number=first.number, drew=[*drew], apart=[*apart], buffers=buffers
            )
            writer.write(record)

    def _written(self) -> list[str]:
        """The buffers that both runs have written, where the second one has changed the values.

        Not to what they were before: that is no sum, but what one batch alone has made of them.
        """
        found = []
        for key, name, buffer in _buffers():
            before = self.versions.get(key)
            if before is None or buffer._version == before or self.first.versions.get(key, before) == before:
                continue
            _Owners.written.add(key)
            value = head(buffer, _BYTES) if key in self.values and key in self.first.values else b""
            if value and self.values[key] != value and _Owners.seen[key].get(value, 0) <= self.first.moment:
                found.append(name)
        return found


_runs = _moments = 0
_lines: Counter[int] = Counter()
"""By line: the runs that were looked at."""


def watch() -> None:
    """See what runs again from now on."""
    once_imported(CHECKPOINTS, _watch)


def _watch() -> None:
    module = sys.modules.get(CHECKPOINTS)
    around(getattr(module, "_CheckpointFrame", None), "__init__", _around_frame)
    around(getattr(module, "CheckpointFunction", None), "forward", _around_forward)


def _look() -> _First | None:
    """None for a run that is not looked at."""
    global _runs
    if recorder.current() is None:
        return None
    number = _runs
    _runs += 1
    with recorder.silence():
        return _First(number) if number < FIRST or not number & (number - 1) else None


def _around_frame(original: Any) -> Any:
    def __init__(self: Any, recompute_fn: Any, *args: Any, **kwargs: Any) -> None:
        first = _look()
        original(self, recompute_fn if first is None else _followed(recompute_fn, first), *args, **kwargs)

    return __init__


def _followed(recompute: Callable[..., Any], first: _First) -> Callable[..., Any]:
    """The same, and it is seen what it does."""

    def recompute_fn(*args: Any, **kwargs: Any) -> Any:
        second = _begin(first)
        try:
            return recompute(*args, **kwargs)
        finally:  # torch ends it by an exception where it needs no more of it
            _end(second)

    return recompute_fn


def _around_forward(original: Any) -> Any:
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        first = _look()
        result = original(ctx, *args, **kwargs)
        function = attribute(ctx, _FUNCTION, None)
        if first is not None and function is not None:
            setattr(ctx, _FUNCTION, _followed(function, first))
        return result

    return forward


@shielded
def _begin(first: _First) -> _Second | None:
    if recorder.current() is None:
        return None
    with recorder.silence():
        return _Second(first)


@shielded
def _end(second: _Second | None) -> None:
    writer = recorder.current()
    if second is not None and writer is not None:
        with recorder.silence():
            second.is_over(writer)


def _held() -> tuple[int, dict[Key, bytes]]:
    """The number of this look, and what the buffers hold whose values are looked at."""
    global _moments
    _moments += 1
    values = {key: head(buffer, _BYTES) for key, _, buffer in _buffers() if key in _Owners.written}
    for key, value in values.items():
        _Owners.seen[key][value] = _moments
    return _moments, values


def _buffers() -> list[tuple[Key, str, torch.Tensor]]:
    """Those that can be read without a wait for a device."""
    roots = dict(models.alive())
    if _Owners.models != list(roots):
        _Owners.models = list(roots)
        _Owners.all = [
            (own_name(path), weakref.ref(module), list(attribute(module, "_buffers", {})))
            for root in roots.values()
            for path, module in root.named_modules()
            if attribute(module, "_buffers", {}) and _STATISTICS not in type(module).__name__
        ]
    found = []
    for path, ref, names in _Owners.all:
        module = ref()
        for name in names if module is not None else ():
            buffer = attribute(module, "_buffers", {}).get(name)
            if type(buffer) is torch.Tensor and buffer.device.type == "cpu" and not buffer.is_inference():
                found.append(((id(module), name), f"{path}.{name}" if path else name, buffer))
    return found
