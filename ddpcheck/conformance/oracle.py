"""The oracle: one process that takes the global batches which the ranks have taken, step by step.

Each step begins with the parameters that the trainer had, so that it is judged
by itself; the optimizer's state is the oracle's own, all the way. What
rounding may do is measured: the step is taken again from parameters and data
that differ in their last bit, with the gradient summed in other orders.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from ddpcheck.conformance import models
from ddpcheck.conformance.datasets import CARRIED, Samples, batch_of
from ddpcheck.conformance.job import optimizer_of
from ddpcheck.conformance.losses import Loss
from ddpcheck.conformance.rank_instructions import RESULT, Request
from ddpcheck.evidence.oracle_comparison import OTHER_DTYPE, ComparedStep, Comparison, Gap, Likeness
from ddpcheck.trainings.situations import ALONG, Situation
from ddpcheck.trainings.steps_with_micro_batches import Micro, Trace, Window, traces_of

ROUNDINGS = 4
"""How often a step is taken again, rounded otherwise."""

SAFETY = 16.0
"""The allowance, in the greatest difference that those have shown."""

BESIDE_THE_NORM = 1e-6
"""What clip_grad_norm_ adds to a norm before it divides by it; clipping is as right with less."""


def replay(_subject: Any, given: Any) -> None:
    """Replay what the ranks have recorded in a folder, and leave the comparison there."""
    request = msgspec.convert(given, Request)
    folder = Path(request.folder)
    comparison = Oracle(request.situation, request.world_size).compare(traces_of(folder, request.world_size))
    (folder / RESULT).write_bytes(msgspec.msgpack.encode(comparison))


class Part(NamedTuple):
    """What one micro-batch of one rank adds to the gradient."""

    total: Tensor
    """The gradient of the sum of its losses, of all parameters in one vector."""
    number: int
    """Of how many samples, or tokens, that is the sum."""


class Oracle:
    """One process that trains as the job says."""

    def __init__(self, situation: Situation, world_size: int) -> None:
        self._situation = situation
        self._readers = situation.readers(world_size)
        self._samples = Samples(situation, situation.size.at(world_size))
        self._net = models.make(situation, seed=0)
        self._net.train()
        self._trained = [p for p in self._net.parameters() if p.requires_grad]
        self._frozen = [p for p in self._net.parameters() if not p.requires_grad]
        self._dropouts = [m for m in self._net.modules() if isinstance(m, models.Dropout)]
        self._optimizer = optimizer_of(situation, self._net.parameters())
        self._loss = Loss(situation.loss)
        self._noise = torch.Generator().manual_seed(0)
        wide = torch.bfloat16 if situation.precision == "bfloat16" else self._trained[0].dtype
        self._unit = torch.finfo(wide).eps
        self._last_bit = torch.finfo(self._trained[0].dtype).eps

    def compare(self, traces: list[Trace]) -> Comparison:
        """Hold every step of the ranks against one of this process."""
        traces = [traces[rank] for rank in self._readers]
        steps = min(len(trace.windows) for trace in traces)
        if not steps:
            return Comparison(trouble="no optimizer step was seen")
        sizes = [parameter.numel() * parameter.element_size() for parameter in self._trained]
        if any(list(map(len, step.before)) != sizes for step in traces[0].steps):
            return Comparison(trouble=OTHER_DTYPE)
        compared: list[ComparedStep] = []
        trouble = ""
        for step in range(steps):
            windows = [trace.windows[step] for trace in traces]
            if not any(window.micros for window in windows):
                trouble = trouble or f"step {step} came without a training forward before it"
                continue
            compared.append(self._step(step, windows, traces[0].names))
        return Comparison(steps=tuple(compared), trouble=trouble)

    # --- one step

    def _step(self, step: int, windows: list[Window], names: list[str]) -> ComparedStep:
        of_rank_0 = windows[0].step
        self._load(self._trained, of_rank_0.before)
        self._load(self._frozen, of_rank_0.frozen)
        for group, rate in zip(self._optimizer.param_groups, of_rank_0.rates, strict=False):
            group["lr"] = rate
        start = [p.detach().clone() for p in self._trained]
        parts = self._parts(windows)
        expected = self._gradient(parts, windows)
        others = self._mistakes(parts, windows)
        spreads = self._spreads(windows, start)
        with torch.no_grad():
            for parameter, value in zip(self._trained, start, strict=True):
                parameter.copy_(value)
        self._advance(expected)
        found_after = [self._tensor(data, like) for data, like in zip(of_rank_0.after, self._trained, strict=True)]
        found_gradient = self._flat([
            torch.zeros_like(like) if data is None else self._tensor(data, like)
            for data, like in zip(of_rank_0.gradients, self._trained, strict=True)
        ])  # fmt: skip
        gaps = tuple(
            self._gap(name, found, parameter.detach(), spread)
            for name, found, parameter, spread in zip(names, found_after, self._trained, spreads, strict=True)
        )
        moved = self._flat([found - value for found, value in zip(found_after, start, strict=True)])
        wanted = self._flat([p.detach() - value for p, value in zip(self._trained, start, strict=True)])
        clipped = self._clipped(expected)
        return ComparedStep(
            step=step,
            gaps=gaps,
            gradient=_likeness(found_gradient, clipped),
            update=_likeness(moved, wanted),
            others={name: _likeness(found_gradient, other) for name, other in others.items()},
            norm=float(found_gradient.norm()),
            expected_norm=float(clipped.norm()),
            factor=_only({factor for micro in windows[0].micros for factor in micro.factors}),
            micros=tuple(len(window.micros) for window in windows),
            numbers=tuple(sum(part.number for part in of_rank) for of_rank in parts),
        )

    def _load(self, parameters: list[torch.nn.Parameter], values: list[bytes]) -> None:
        with torch.no_grad():
            for parameter, data in zip(parameters, values, strict=True):
                parameter.copy_(self._tensor(data, parameter))

    @staticmethod
    def _tensor(data: bytes, like: Tensor) -> Tensor:
        if not data:
            return torch.zeros_like(like)
        return torch.frombuffer(bytearray(data), dtype=like.dtype).view(like.shape)

    @staticmethod
    def _flat(tensors: list[Tensor]) -> Tensor:
        return torch.cat([tensor.detach().flatten().double() for tensor in tensors])

    # --- gradients

    def _parts(self, windows: list[Window], nudge: float = 0.0) -> list[list[Part]]:
        """What each micro-batch of each rank adds, by rank."""
        if self._situation.loss == "pairs":
            return [self._of_pairs(windows, nudge)] + [[] for _ in windows[1:]]
        return [[self._part([micro], nudge) for micro in window.micros] for window in windows]

    def _of_pairs(self, windows: list[Window], nudge: float) -> list[Part]:
        """Micro-batches of all ranks together, since each sample is held against all others."""
        rounds = max(len(window.micros) for window in windows)
        return [
            self._part([window.micros[place] for window in windows if place < len(window.micros)], nudge)
            for place in range(rounds)
        ]

    def _part(self, micros: list[Micro], nudge: float) -> Part:
        outputs, targets = [], []
        dtype = torch.bfloat16 if self._situation.precision == "bfloat16" else None
        for micro in micros:
            inputs, wanted = batch_of(self._samples, micro.forward.samples)
            if nudge:
                inputs[:, CARRIED:] *= self._near_one(inputs[:, CARRIED:], nudge)
            for dropout, mask in zip(self._dropouts, micro.forward.masks, strict=False):
                dropout.given = torch.frombuffer(bytearray(mask), dtype=torch.uint8).bool()
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                outputs.append(self._net(inputs))
            targets.append(wanted)
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            losses = self._loss.parts(torch.cat(outputs), torch.cat(targets))
        gradients = torch.autograd.grad(losses.sum(), self._trained, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for p, g in zip(self._trained, gradients, strict=True)]
        return Part(torch.cat([g.flatten() for g in filled]), len(losses))

    def _gradient(self, parts: list[list[Part]], windows: list[Window]) -> Tensor:
        """The gradient of the mean over the global batch."""
        if self._situation.loss == "pairs":  # of each round of micro-batches its own mean
            return torch.stack([part.total / part.number for part in parts[0]]).mean(dim=0)
        flat = [part for of_rank in parts for part in of_rank]
        return torch.stack([part.total for part in flat]).sum(dim=0) / max(1, sum(part.number for part in flat))

    def _clipped(self, gradient: Tensor, beside: float = BESIDE_THE_NORM) -> Tensor:
        limit = self._situation.clip_norm
        if limit is None:
            return gradient
        return gradient * torch.clamp(limit / (gradient.norm() + beside), max=1.0)

    def _mistakes(self, parts: list[list[Part]], windows: list[Window]) -> dict[str, Tensor]:
        """What the gradient would be by certain mistakes, where that is another one."""
        if self._situation.loss == "pairs":
            apart = [
                self._mean([self._part([micro], 0.0) for micro in window.micros]) for window in windows if window.micros
            ]
            return {"own": apart[0], "apart": torch.stack(apart).mean(dim=0)} if apart else {}
        flat = [part for of_rank in parts for part in of_rank if part.number]
        found = {"means": self._mean(flat)}
        whole = [Part(torch.stack([p.total for p in of_rank]).sum(dim=0), sum(p.number for p in of_rank))
                 for of_rank in parts if of_rank]  # fmt: skip
        found["ranks"] = self._mean([part for part in whole if part.number])
        if parts[0]:
            found["own"] = self._mean(parts[0])
            if len(parts[0]) > 1:
                found["last"] = self._mean([of_rank[-1] for of_rank in parts if of_rank])
        if self._situation.parallelism in ALONG and (
            copy := [part for of_rank in parts[: len(parts) // 2] for part in of_rank]
        ):
            found["copy"] = self._clipped(self._gradient([copy], windows))
        if self._situation.clip_norm is not None:
            found["unclipped"] = self._gradient(parts, windows)
        return found

    @staticmethod
    def _mean(parts: list[Part]) -> Tensor:
        """The mean of the parts' means, each of the same weight."""
        return torch.stack([part.total / max(1, part.number) for part in parts]).mean(dim=0)

    # --- updates

    def _advance(self, gradient: Tensor, beside: float = BESIDE_THE_NORM) -> None:
        clipped, start = self._clipped(gradient, beside), 0
        for parameter in self._trained:
            piece = clipped[start : start + parameter.numel()]
            parameter.grad = piece.view_as(parameter).to(parameter.dtype).clone()
            start += parameter.numel()
        self._optimizer.step()

    def _spreads(self, windows: list[Window], start: list[Tensor]) -> list[Tensor]:
        """For each parameter: how far this step may go, element by element, when all of it is rounded otherwise."""
        results = []
        state = deepcopy(self._optimizer.state_dict())
        for number in range(ROUNDINGS):
            with torch.no_grad():
                for parameter, value in zip(self._trained, start, strict=True):
                    # Not below the last bit of its own type; autocast rounds what is computed with it.
                    parameter.copy_(value * self._near_one(value, self._unit))
            turned = [Window(tuple(reversed(w.micros)), w.step) for w in reversed(windows)] if number % 2 else windows
            parts = self._parts(turned, nudge=self._unit)
            gradient = self._gradient(parts, turned)
            gradient = gradient * self._near_one(gradient, self._unit)
            with torch.no_grad():
                for parameter, value in zip(self._trained, start, strict=True):
                    parameter.copy_(value * self._near_one(value, self._last_bit))
            self._advance(gradient, BESIDE_THE_NORM if number % 2 else 0.0)
            results.append([p.detach().clone() for p in self._trained])
            self._optimizer.load_state_dict(deepcopy(state))
        base = results[0]
        return [
            torch.stack([(run[place] - base[place]).abs() for run in results]).amax(dim=0)
            for place in range(len(self._trained))
        ]

    def _near_one(self, like: Tensor, unit: float) -> Tensor:
        signs = torch.randint(0, 2, like.shape, generator=self._noise).to(like.dtype) * 2 - 1
        return 1 + unit * signs

    def _gap(self, name: str, found: Tensor, expected: Tensor, spread: Tensor) -> Gap:
        gaps = (found - expected).abs()
        allowed = SAFETY * float(spread.max()) + 4 * self._last_bit * float(expected.abs().max())
        place = int(torch.nan_to_num(gaps, nan=float("inf")).argmax())
        worst = float(gaps.flatten()[place])
        return Gap(
            name=name,
            worst=worst,
            allowed=allowed,
            index=tuple(int(i) for i in torch.unravel_index(torch.tensor(place), gaps.shape)),
            found=float(found.flatten()[place]),
            expected=float(expected.flatten()[place]),
            same_bits=bool(torch.equal(found, expected)),
        )


def _likeness(found: Tensor, expected: Tensor) -> Likeness:
    found, expected = found.double(), expected.double()
    product, size = float(found @ expected), float(expected @ expected)
    lengths = float(found.norm() * expected.norm())
    return Likeness(ratio=product / size if size else 0.0, cosine=product / lengths if lengths else 0.0)


def _only(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None
