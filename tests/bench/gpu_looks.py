"""What a look at a model on a GPU costs, without one: kernels and bytes counted, and the pace's own arithmetic.

    nox -s gpu-looks

The tensors are the CPU's and share their memory; they take the way of those on
a GPU, operation by operation. What a step slows down by is worked out from
these counts, the rates below, and the real Pace on a clock that is set by hand.
A run on a GPU (`nox -s gpu`) measures the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import torch

from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.recording import pace
from ddpcheck.probes.recording.pace import Pace, is_due
from tests.probes.digests.counted_operations import Counting

BYTES_PER_SECOND = 2.6e12
"""Of an H100's 3.35 TB/s, what elementwise kernels reach."""
DEVICE_PER_KERNEL, HOST_PER_KERNEL = 2e-6, 10e-6
HOST_PER_TENSOR = 10e-6
"""Seconds of Python for each tensor of each digest: a digest of 80 small tensors takes 1.2 ms on the CPU, with what it
computes."""


class Counts(NamedTuple):
    """Of some looks."""

    kernels: int
    moved: int
    """Bytes that are read and written."""
    digested: int
    waits: int
    """Operations for whose result the host waits."""
    passes: int
    """Tensors, each as often as it is digested."""


def gpt(layers: int, width: int, words: int = 50304, length: int = 1024) -> list[tuple[int, ...]]:
    """The shapes of a GPT's parameters."""
    layer: list[tuple[int, ...]] = [
        (width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,),
        (width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,),
    ]  # fmt: skip
    return [(words, width), (length, width), *layer * layers, (width,), (width,)]


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Let tensors of the CPU take the way of those on a GPU."""
    original = fast_digests._digest
    fast_digests._digest = lambda tensor, turn: None
    try:
        yield
    finally:
        fast_digests._digest = original


def parameters(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """Parameters with gradients, all of them in the memory of the largest."""
    largest = max(map(prod, shapes))
    values, gradients = torch.zeros(largest), torch.zeros(largest)
    made: list[torch.Tensor] = []
    for shape in shapes:
        one = torch.nn.Parameter(values[: prod(shape)].view(shape))
        one.grad = gradients[: prod(shape)].view(shape)
        made.append(one)
    return made


def whole_look(these: list[torch.Tensor]) -> int:
    """All that is digested of a step with Adam that is looked at in full; how many digests of all elements that is."""
    AfterBackward(these)
    fast_digests.queued([one.grad for one in these])
    fast_digests.queued(these)
    for _ in ("exp_avg", "exp_avg_sq"):  # as large as the parameters
        fast_digests.queued(these)
    return 5


def window_look(these: list[torch.Tensor]) -> int:
    """The same of a step of which a part of every tensor is looked at."""
    fast_digests.queued([one.grad for one in these], 1)
    fast_digests.queued(these, 1)
    return 2


def buffer_look(these: list[torch.Tensor]) -> int:
    """The buffers of a wrapper, when they are broadcast or a step was made."""
    fast_digests.queued(these)
    return 1


def counted(look: Any, these: list[torch.Tensor]) -> Counts:
    """What a look comes to."""
    with as_on_a_gpu(), Counting() as counting:
        digests = look(these)
    size = sum(one.numel() * one.element_size() for one in these)
    windows = sum(min(one.numel() * one.element_size(), fast_digests.WINDOW) for one in these)
    return Counts(
        kernels=counting.kernels,
        moved=counting.moved,
        digested=digests * (size if look is whole_look else windows),
        waits=counting.waits,
        passes=len(these) * digests,
    )


class Clock:
    """Set by hand."""

    now = 0.0

    def fine(self) -> float:
        return self.now


def slow_down(whole: Counts, window: Counts, buffers: Counts, step: float, steps: int) -> float:
    """By how much a training takes longer whose every look costs its host and its device in full."""
    clock = Clock()
    original, pace.clock = pace.clock, clock  # type: ignore[assignment]
    try:
        careful, quick = Pace(careful=True), Pace()
        spent = cost_of(whole)[0] / 2 + cost_of(whole)[1] / 2  # the parameters when the model is wrapped, and at step 0
        for number in range(steps):
            full, part = careful.is_due(number), quick.is_due(number)
            if full or part:
                host, device = cost_of(whole if full else window)
                (careful if full else quick).spent(host, number, [functools.partial(float, device)])
                spent += host + device
                clock.now += host + device
            if buffers.passes and is_due(number):
                spent += 2 * sum(cost_of(buffers))  # with the broadcast, and after the step
            clock.now += step
    finally:
        pace.clock = original
    return 1 + spent / (steps * step)


def cost_of(counts: Counts) -> tuple[float, float]:
    """Seconds of the host and of the device."""
    host = counts.kernels * HOST_PER_KERNEL + counts.passes * HOST_PER_TENSOR
    return host, counts.kernels * DEVICE_PER_KERNEL + counts.moved / BYTES_PER_SECOND


def main() -> None:
    """Print both tables."""
    buffered: list[tuple[int, ...]] = [(64,), (64,), ()] * 20
    small: list[tuple[int, ...]] = [(64, 64), (64,), (64,), (64,)] * 20
    models = {"1 B parameters": (gpt(18, 2048), [], 0.123), "a small net with 20 BatchNorms": (small, buffered, 0.012)}
    for name, (shapes, buffers, step) in models.items():
        these = parameters(shapes)
        whole, window = counted(whole_look, these), counted(window_look, these)
        kept = counted(buffer_look, [torch.zeros(shape) for shape in buffers])
        print(f"{name}: {len(these)} tensors, {sum(map(prod, shapes)) / 1e6:,.1f} M elements")
        for title, counts in (("in full", whole), ("in part", window)):
            host, device = cost_of(counts)
            print(
                f"  a look {title}: {counts.kernels:,} kernels, {counts.moved / counts.digested:.2f} bytes moved for "
                f"each digested, {counts.waits} waits; worked out: host {host * 1e3:.1f} ms, H100 {device * 1e3:.1f} ms"
            )
        told = ", ".join(f"{slow_down(whole, window, kept, step, n):.3f} over {n:,}" for n in (50, 200, 1000, 10_000))
        print(f"  slow-down of steps of {step * 1e3:.0f} ms, worked out: {told}")


if __name__ == "__main__":
    main()
