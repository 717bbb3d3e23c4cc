"""A rank's record of a training: what the model, the loss and the optimizer are asked to do, written down at once."""

from __future__ import annotations

import os
import resource
import signal
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddpcheck.conformance.held_parameters import trained
from ddpcheck.conformance.models import Net
from ddpcheck.evidence import training_record
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.digests.exact_digests import digest_of_parts, tensor_bytes
from ddpcheck.probes.layouts import declared
from ddpcheck.trainings.situations import Situation


class PlannedFailure(RuntimeError):
    """What the loss raises where the situation wants one rank to fail."""


class Recording:
    """The facts of one rank, from ``begin`` on; it also does to the rank what the situation wants done."""

    def __init__(self, situation: Situation, folder: Path, checkpoints: Path, raises: bool) -> None:
        self._situation, self._checkpoints, self._raises = situation, checkpoints, raises
        self._file = -1
        self._path = folder
        self._muted = False
        self._steps = 0
        self._names: list[str] = []
        self.net: Net | None = None
        """The model of the last training forward: the job's own, or a copy that is trained in its place."""
        self.latest: Net | None = None
        """The model of the last forward of any kind: what is evaluated may be an average of others."""
        self._entry: tuple[list[bytes], list[bytes | None]] | None = None
        self._stepping: torch.optim.Optimizer | None = None
        """The outermost optimizer that is in its step: some, like ZeroRedundancyOptimizer, have another one in them."""

    # --- the file

    def begin(self, net: Net, rank: int) -> None:
        """Record everything from now on that a training does with this model, or a copy of it."""
        self._file = os.open(training_record.file_of(self._path, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.net = net
        self._names = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
        self.write(training_record.Began(parameters=self._names))
        net.watch(self._before_forward, self._after_forward)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def write(self, fact: training_record.Fact) -> None:
        """Write a fact down: in one piece, with the kernel as soon as this returns."""
        if not self._muted and self._file >= 0:
            os.write(self._file, training_record.frame(fact))

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nothing that is done in here is on record."""
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    # --- the model

    def _before_forward(self, net: Net) -> None:
        if _in_backward() or (self._muted and self._situation.at != "kill-in-save"):
            return
        training = net.training and torch.is_grad_enabled()
        if training and self._due() and self._situation.at in ("kill", "kill-in-save"):
            # No goodbye of any kind, as the kernel or a scheduler would end it.
            os.kill(os.getpid(), signal.SIGKILL)
        self._statistics = _digest(buffer for _, buffer in net.named_buffers())
        self._parameters = _digest(parameter for _, parameter in net.named_parameters())

    def _after_forward(
        self, net: Net, numbers: Tensor, draws: Tensor, masks: list[Tensor], computed_in: torch.dtype
    ) -> None:
        if self._muted or _in_backward():
            return
        self.latest = net
        if net.training and torch.is_grad_enabled():
            self.net = net
        self.write(
            training_record.Forward(
                training=net.training and torch.is_grad_enabled(),
                samples=[int(number) for number in numbers.tolist()],
                draws=draws[:, 0].double().tolist(),
                of_numpy=draws[:, 1].double().tolist(),
                device=numbers.device.type,
                arithmetic=str(computed_in).removeprefix("torch."),
                masks=[bytes(mask.flatten().to(torch.uint8).tolist()) for mask in masks],
                parameters=self._parameters,
                statistics=self._statistics,
            )
        )

    def _due(self) -> bool:
        """As many steps are done as the situation wants before it interferes."""
        further = 1 if self._situation.at == "kill-in-save" else 0
        return self._steps >= self._situation.at_step + further

    # --- the loss

    def notice_loss(self, mean: Tensor, number: int) -> None:
        """Told by the job's loss of each value that it returns."""
        if self._muted:
            return
        self.write(training_record.Lost(value=float(mean.detach()), number=number))
        if self._raises and self._due() and mean.requires_grad:
            self.write(training_record.Raised())
            raise PlannedFailure("the conformance suite lets the loss of this rank fail here")
        if mean.requires_grad:
            mean.register_hook(self._pulled)  # type: ignore[no-untyped-call]

    def _pulled(self, gradient: Tensor) -> None:
        self.write(training_record.Pulled(factor=float(gradient)))

    # --- the optimizer

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._is_ours(optimizer) or _only_makes_state():
            return None
        if self._stepping not in (None, optimizer) and _is_in_step(self._stepping):
            return None
        self._stepping = optimizer
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._enter()
            return None

        def observed(*given: Any, **named: Any) -> Any:
            result = closure(*given, **named)
            self._enter()  # the gradients that the step is made with are those that the closure leaves
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": observed}
        return (args[0], observed, *args[2:]), kwargs

    def _enter(self) -> None:
        assert self.net is not None
        held = trained(self.net, self._names)
        self._entry = (
            [_bytes(one.tensor) for one in held],
            [None if one.leaf.grad is None else _bytes(one.leaf.grad) for one in held],
        )

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._stepping not in (None, optimizer) or _only_makes_state():
            return
        self._stepping = None
        if not self._is_ours(optimizer):
            if any(parameter.requires_grad for group in optimizer.param_groups for parameter in group["params"]):
                self.write(training_record.ForeignStep())
            return
        assert self.net is not None
        if self._entry is None:  # the closure was not called
            self._enter()
        assert self._entry is not None
        before, gradients = self._entry
        self._entry = None
        held = [one.tensor for one in trained(self.net, self._names)]
        self.write(
            training_record.Step(
                rates=[float(group["lr"]) for group in optimizer.param_groups],
                before=before,
                gradients=gradients,
                after=[_bytes(tensor) for tensor in held],
                frozen=[_bytes(parameter) for parameter in self.net.parameters() if not parameter.requires_grad],
                moments=_moments(optimizer),
                parts=_parts(held),
                frozen_parts=_parts(parameter for parameter in self.net.parameters() if not parameter.requires_grad),
            )
        )
        self._steps += 1
        if self._situation.at == "kill-in-save" and self._steps == self._situation.at_step:
            self._kill_in_the_next_write()

    def _is_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        if self._muted or self.net is None:
            return False
        known = {id(parameter) for parameter in self.net.parameters()}
        known |= {id(one.leaf) for one in trained(self.net, self._names)}
        return any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"])

    def _kill_in_the_next_write(self) -> None:
        """Have the kernel kill this rank as soon as a file grows beyond half of the checkpoint that is there."""
        sizes = [file.stat().st_size for file in self._checkpoints.rglob("*") if file.is_file()]
        if not sizes:
            return
        self.write(training_record.Saving())
        self._muted = True  # our own file may be longer
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(1, max(sizes) // 2), hard))

    # --- the end

    def returned(self) -> None:
        """The trainer has returned."""
        assert self.net is not None
        held = [one.tensor for one in trained(self.net, self._names)]
        self.write(training_record.Returned(parameters=[_bytes(tensor) for tensor in held], parts=_parts(held)))


def _is_in_step(optimizer: torch.optim.Optimizer | None) -> bool:
    """Whether this is called from within a step of that optimizer, and not after one that has raised."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("step", "wrapper") and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def _only_makes_state() -> bool:
    """Whether this is the step, with gradients of zero, by which torch's checkpoints have an optimizer make state."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_init_optim_state" and frame.f_globals.get("__name__", "").startswith("torch."):
            return True
        frame = frame.f_back
    return False


def _in_backward() -> bool:
    """Whether this is the recomputation of a forward that is on record: activation checkpointing's."""
    task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
    return bool(task() != -1)


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor_bytes(tensor))


def _parts(parameters: Iterable[Tensor]) -> list[training_record.Part | None]:
    """What the bytes of these are of; empty where all of them are whole."""
    found = [_part(parameter) for parameter in parameters]
    return found if any(found) else []


def _part(parameter: Any) -> training_record.Part | None:
    place = declared.place_of(parameter) if readable_memory.is_dtensor(parameter) else None
    local = readable_memory.part(parameter) if place is not None else None
    if place is None or local is None:
        return None
    shape = tuple(parameter.shape)
    return training_record.Part(shape=shape, offset=place[0], local=tuple(local.shape), copy=place[1])


def _digest(tensors: Any) -> str:
    return digest_of_parts([_bytes(tensor) for tensor in tensors])


def _moments(optimizer: torch.optim.Optimizer) -> str:
    parts = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in sorted((optimizer.state.get(parameter) or {}).items()):
                parts += [name.encode(), _bytes(value) if isinstance(value, Tensor) else repr(value).encode()]
    return digest_of_parts(parts)
