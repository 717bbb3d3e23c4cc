"""Random programs over tensors on random devices, what real devices would make of them, and a run of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ddpcheck
from tests.devices.truth import (
    REFUSED,
    Rule,
    choice,
    copied,
    elementwise,
    in_place,
    indexed,
    indexed_to_write,
    masked,
    same,
)

PLACES = ("cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3")


class Chooser(Protocol):
    """Where a program's choices come from: a random generator, or a library for properties that shrinks them."""

    def choice(self, options: Sequence[Any], /) -> Any: ...


# --- operations

Shape = str
"""What a value is: "matrix" (3 by 4) or "scalar"."""


@dataclass(frozen=True)
class Operation:
    """One way to compute a value from others: its inputs' kinds, its result's shape, and the rule of its devices."""

    run: Callable[..., Tensor]
    kinds: tuple[str, ...]
    result: Shape
    rule: Rule


def _written(x: Tensor, index: Any, value: Tensor) -> Tensor:
    result = x.clone()
    result[index] = value
    return result


def _part(x: Tensor) -> Tensor:
    """One of two parts, the other unused: autograd fills its gradient in with zeros of its own making."""
    left, _ = torch.chunk(x, 2, dim=1)
    return torch.cat([left, left], 1)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, ("matrix", "matrix"), "matrix", elementwise),
    "sub scalar": Operation(torch.sub, ("matrix", "scalar"), "matrix", elementwise),
    "scalar times": Operation(torch.mul, ("scalar", "matrix"), "matrix", elementwise),
    "add scalars": Operation(torch.add, ("scalar", "scalar"), "scalar", elementwise),
    "times number": Operation(lambda x: x * 0.5, ("matrix",), "matrix", same),
    "add in place": Operation(lambda x, y: x.clone().add_(y), ("matrix", "matrix"), "matrix", in_place),
    "scale in place": Operation(lambda x, s: x.clone().mul_(s), ("matrix", "scalar"), "matrix", in_place),
    "lerp": Operation(torch.lerp, ("matrix", "matrix", "scalar"), "matrix", elementwise),
    "clamp": Operation(lambda x, s: torch.clamp(x, min=s), ("matrix", "scalar"), "matrix", same),
    "addcmul": Operation(torch.addcmul, ("matrix", "matrix", "matrix"), "matrix", same),
    "where": Operation(torch.where, ("mask", "matrix", "matrix"), "matrix", choice),
    "where scalar": Operation(torch.where, ("mask", "matrix", "scalar"), "matrix", choice),
    "masked_fill": Operation(lambda x, m, s: x.masked_fill(m, s), ("matrix", "mask", "number"), "matrix", masked),
    "relu": Operation(torch.relu, ("matrix",), "matrix", same),
    "tanh": Operation(torch.tanh, ("matrix",), "matrix", same),
    "gelu": Operation(F.gelu, ("matrix",), "matrix", same),
    "softmax": Operation(lambda x: torch.softmax(x, 1), ("matrix",), "matrix", same),
    "dropout": Operation(lambda x: F.dropout(x, 0.25), ("matrix",), "matrix", same),
    "part": Operation(_part, ("matrix",), "matrix", same),
    "turned": Operation(lambda x: x.t().contiguous().view(3, 4), ("matrix",), "matrix", same),
    "cat": Operation(lambda x, y: torch.cat([x, y])[2:5], ("matrix", "matrix"), "matrix", same),
    "stack": Operation(lambda x, y: torch.stack([x, y]).sum(0), ("matrix", "matrix"), "matrix", same),
    "matmul": Operation(lambda x, w: x @ w, ("matrix", "square"), "matrix", same),
    "linear": Operation(F.linear, ("matrix", "square", "vector"), "matrix", same),
    "layer_norm": Operation(
        lambda x, w, b: F.layer_norm(x, (4,), w, b), ("matrix", "vector", "vector"), "matrix", same
    ),
    "batch_norm": Operation(
        lambda x, m, v: F.batch_norm(x, m, v, training=True), ("matrix", "zeros", "ones"), "matrix", same
    ),
    "conv": Operation(lambda x, k, b: F.conv1d(x[None], k, b)[0], ("matrix", "kernels", "channels"), "matrix", same),
    "embedding": Operation(F.embedding, ("rows", "matrix"), "matrix", same),
    "index": Operation(lambda x, i: x[i], ("matrix", "rows"), "matrix", indexed),
    "index_select": Operation(lambda x, i: x.index_select(0, i), ("matrix", "rows"), "matrix", same),
    "gather": Operation(lambda x, i: x.gather(0, i), ("matrix", "places"), "matrix", same),
    "slice written": Operation(lambda x, y: _written(x, 0, y[1]), ("matrix", "matrix"), "matrix", copied),
    "index written": Operation(_written, ("matrix", "rows", "matrix"), "matrix", indexed_to_write),
    "copied": Operation(lambda x, y: x.clone().copy_(y), ("matrix", "matrix"), "matrix", copied),
    "sum": Operation(torch.sum, ("matrix",), "scalar", same),
    "mean of squares": Operation(lambda x: x.square().mean(), ("matrix",), "scalar", same),
    "mse_loss": Operation(F.mse_loss, ("matrix", "matrix"), "scalar", elementwise),
    "cross_entropy": Operation(F.cross_entropy, ("matrix", "labels"), "scalar", same),
}

LEAVES: dict[str, Callable[[], Tensor]] = {
    "matrix": lambda: torch.randn(3, 4),
    "scalar": lambda: torch.randn(()),
    "number": lambda: torch.randn(()),
    "square": lambda: torch.randn(4, 4),
    "vector": lambda: torch.randn(4),
    "zeros": lambda: torch.zeros(4),
    "ones": lambda: torch.ones(4),
    "kernels": lambda: torch.randn(3, 3, 1),
    "channels": lambda: torch.randn(3),
    "mask": lambda: torch.arange(12).reshape(3, 4) % 3 == 0,
    "rows": lambda: torch.tensor([2, 0, 1]),
    "labels": lambda: torch.tensor([1, 3, 0]),
    "places": lambda: torch.tensor([[0, 1, 2, 0], [2, 1, 0, 1], [1, 1, 0, 2]]),
}
LEARNT = ("matrix", "scalar", "square", "vector", "kernels", "channels")
"""Kinds of leaves that have a gradient."""

WAYS: dict[str, Callable[[Tensor, str], Tensor]] = {
    "to": lambda x, place: x.to(place),
    "to device": lambda x, place: x.to(torch.device(place)),
    "to number": lambda x, place: x.cpu() if place == "cpu" else x.to(int(place[-1])),
    "cuda": lambda x, place: x.cpu() if place == "cpu" else x.cuda(int(place[-1])),
    "to like": lambda x, place: x.to(torch.zeros(1, dtype=x.dtype, device=place)),
}
"""Ways to move a tensor."""

OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=True),
    "SGD in a loop": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=False),
    "Adam": lambda parameters: torch.optim.Adam(parameters, foreach=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "AdamW in a loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
}


# --- programs


@dataclass(frozen=True)
class Step:
    """One line of a program: a value that is made, moved or computed."""

    what: str
    """ "leaf", "move", or an operation's name."""
    result: str
    """The value's kind."""
    inputs: tuple[int, ...] = ()
    place: str = ""
    way: str = "to"
    learnt: bool = False


@dataclass(frozen=True)
class Program:
    """Steps, and a training step at the end."""

    steps: tuple[Step, ...]
    optimizer: str
    seed: int


def draw(choose: Chooser) -> Program:
    """A random program; placements agree more often than not, or hardly a program would get far."""
    steps: list[Step] = []
    length = choose.choice(range(3, 13))
    home = choose.choice(PLACES)
    at_home = choose.choice([5, 30, 150])

    def place() -> str:
        return str(choose.choice([home] * at_home + list(PLACES)))

    def value(kind: str) -> int:
        there = [number for number, step in enumerate(steps) if step.result == kind]
        if there and choose.choice([True, True, False]):
            return int(choose.choice(there))
        learnt = kind in LEARNT and choose.choice([True, False])
        steps.append(Step("leaf", kind, place=place(), way=choose.choice(list(WAYS)), learnt=learnt))
        return len(steps) - 1

    for _ in range(length):
        if choose.choice([True, False, False, False]):
            source = value(choose.choice(["matrix", "matrix", "scalar"]))
            way = choose.choice(list(WAYS))
            steps.append(Step("move", steps[source].result, (source,), place(), way))
            continue
        name = choose.choice(list(OPERATIONS))
        operation = OPERATIONS[name]
        inputs = tuple(value(kind) for kind in operation.kinds)
        steps.append(Step(name, operation.result, inputs))
    return Program(tuple(steps), choose.choice(list(OPTIMIZERS)), choose.choice(range(1000)))


# --- the truth


def expected(program: Program) -> tuple[list[str], int | None]:
    """The device of each value in turn, and the number of the first step that real devices refuse, if there is one."""
    devices: list[str] = []
    for number, step in enumerate(program.steps):
        if step.what in ("leaf", "move"):
            devices.append(step.place)
            continue
        kinds = ["scalar" if kind == "number" else kind for kind in OPERATIONS[step.what].kinds]
        verdict = OPERATIONS[step.what].rule(kinds, [devices[each] for each in step.inputs])
        if verdict == REFUSED:
            return devices, number
        devices.append(verdict)
    return devices, None


def backward_is_refused(program: Program, devices: Sequence[str]) -> bool:
    """Whether real devices refuse the backward of a program that reaches its end.

    What is written at indices may take these from any device. Its gradient is read at the same indices, which are then
    to be on the CPU or where the gradient is.
    """
    wanted: list[bool] = []
    for number, step in enumerate(program.steps):
        wanted.append(step.learnt or any(wanted[each] for each in step.inputs))
        if step.what == "index written":
            _, index, values = step.inputs
            if wanted[values] and devices[index] not in ("cpu", devices[number]):
                return True
    return False


# --- a run


@dataclass
class Run:
    """What a program did."""

    devices: list[str] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    """On the CPU: each step's, then gradients and what the optimizer made of the parameters."""
    stopped_at: int | None = None
    error: RuntimeError | None = None


def run(program: Program, on_cpu: bool, until: int | None = None) -> Run:
    """Run a program, all of it on the CPU or where it says, and up to a step or to the end.

    A run that reaches its end takes the gradients of all that is learnt, and an optimizer's step.
    """
    torch.manual_seed(program.seed)
    made = Run()
    devices, _ = expected(program)
    values: list[Tensor] = []
    for number, step in enumerate(program.steps[:until]):
        try:
            moves = on_cpu and step.what == "move" and devices[step.inputs[0]] != step.place
            value = _value(step, values, on_cpu, moves)
        except RuntimeError as error:
            made.stopped_at, made.error = number, error
            return made
        values.append(value)
        made.devices.append(str(value.device))
        made.values.append(value.detach().cpu().clone())
    if until is None:
        _train(program, values, made)
    return made


def _value(step: Step, values: Sequence[Tensor], on_cpu: bool, moves: bool) -> Tensor:
    place = "cpu" if on_cpu else step.place
    if step.what == "leaf":
        value = WAYS[step.way](LEAVES[step.result](), place)
        return nn.Parameter(value) if step.learnt else value
    if step.what == "move":
        source = values[step.inputs[0]]
        # On the CPU a copy stands for a move: autograd adds gradients up in an order that its graph's shape decides.
        if on_cpu:
            return source.clone() if moves else source
        return WAYS[step.way](source, place)
    return OPERATIONS[step.what].run(*(values[each] for each in step.inputs))


def _train(program: Program, values: Sequence[Tensor], made: Run) -> None:
    """One step of training: the loss is of the last value, and everything else that depends on something learnt."""
    # By device, since torch takes the norm of gradients device by device, and its last bit depends on their order.
    numbers = sorted((n for n, step in enumerate(program.steps) if step.learnt), key=lambda n: program.steps[n].place)
    learnt = [values[number] for number in numbers]
    computed = [value for value, step in zip(values, program.steps, strict=True) if step.what in OPERATIONS]
    ends = [value for value in computed if value.requires_grad]
    if not ends:
        return
    loss = torch.zeros(())
    for value in ends:
        loss = loss + value.square().mean().cpu()
    loss.backward()
    reached = [parameter for parameter in learnt if parameter.grad is not None]
    made.devices.extend(str(parameter.grad.device) for parameter in reached if parameter.grad is not None)
    made.devices.extend(str(parameter.device) for parameter in reached)
    made.values.extend(parameter.grad.cpu().clone() for parameter in reached if parameter.grad is not None)
    nn.utils.clip_grad_norm_(reached, 1.0)
    OPTIMIZERS[program.optimizer](reached).step()
    made.values.extend(parameter.detach().cpu().clone() for parameter in reached)


def disagreement(program: Program) -> str | None:
    """How the simulation and the truth differ over a program, or None where they agree."""
    devices, refused_at = expected(program)
    refused_backward = refused_at is None and backward_is_refused(program, devices)
    with ddpcheck.simulated_devices(len(PLACES) - 1):
        try:
            simulated = run(program, on_cpu=False)
        except RuntimeError as error:
            return None if refused_backward else f"the backward was refused: {error}"
    if refused_backward:
        return "the backward was not refused"
    if simulated.stopped_at != refused_at:
        return f"stopped at step {simulated.stopped_at}, should at {refused_at}: {simulated.error}"
    if simulated.devices[: len(devices)] != devices:
        return f"values on {simulated.devices}, should be on {devices}"
    trained = simulated.devices[len(devices) :]
    gradients, parameters = trained[: len(trained) // 2], trained[len(trained) // 2 :]
    if gradients != parameters:
        return f"gradients on {gradients} of parameters on {parameters}"
    return _difference(simulated, run(program, on_cpu=True, until=refused_at))


def _difference(simulated: Run, plain: Run) -> str | None:
    """The first value that is not the CPU's to the bit, or None."""
    for number, (one, other) in enumerate(zip(simulated.values, plain.values, strict=True)):
        if one.numpy().tobytes() != other.numpy().tobytes():
            return f"value {number} is {one.tolist()}, on the CPU {other.tolist()}"
    return None
