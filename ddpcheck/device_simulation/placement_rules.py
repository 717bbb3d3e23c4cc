"""Whether real GPUs would run an operation on tensors that lie where these do: a pure function of names and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.operator_rules import Operator

CPU = "cpu"


@dataclass(frozen=True)
class Operand:
    """One tensor that an operator is given."""

    argument: str
    """Of the operator's schema; the tensors of a list share their argument's name."""
    device: str
    dims: int
    output: bool = False
    """Given to be written to (``out=``); torch looks at these first."""
    dtype: str = ""

    @property
    def is_cpu_scalar(self) -> bool:
        return self.device == CPU and self.dims == 0


REFUSING_SCALARS = {"clamp", "clamp_", "nextafter", "nextafter_", "binary_cross_entropy"}
"""Elementwise operators that take no CPU scalar beside tensors on a GPU, though they have no more than two tensors."""

TERNARY_WITH_SCALARS = {"lerp", "lerp_"}
"""Operators of three tensors that take one CPU scalar."""

ONE_DEVICE_LISTS = ("_fused_", "_amp_foreach_")
"""Operators over lists whose kernels want all tensors of all lists on one device."""


def refusal(name: str, operator: Operator, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """The error of real devices for an operator with these tensors, or None where they would run it.

    ``name`` is the operator's, with its overload; ``operands`` are in the
    schema's order. Without a tensor on a GPU nothing is refused.
    """
    if all(operand.device == CPU for operand in operands):
        return None
    base = name.partition(".")[0]
    if base.startswith("_fused_"):  # an optimizer's, which reads a learning rate on the CPU there
        operands = [each for each in operands if not (each.argument == "lr" and each.device == CPU)]
    ordered = [*(each for each in operands if each.output), *(each for each in operands if not each.output)]
    special = _SPECIAL.get(base.rstrip("_"))
    if special:
        return special(base, ordered, version)
    if base.startswith(ONE_DEVICE_LISTS):
        return _same(operator.method, ordered, version)
    # The polynomials among special functions say nothing of it, and are elementwise.
    if operator.check == "none" and not base.startswith("special_"):
        return None
    if operator.check == "same":
        return _same(operator.method, ordered, version)
    if operator.check == "lists":
        return _lists(base, ordered, version)
    return _operands(base, ordered)


def _same(method: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    for operand in operands[1:]:
        if operand.device != operands[0].device:
            return torch_messages.mismatch(version, operands[0].device, operand.argument, operand.device, method)
    return None


def _operands(base: str, operands: Sequence[Operand]) -> str | None:
    """An elementwise operator: one CPU scalar may stand beside the tensors of a GPU, where there are two operands."""
    common = next((operand.device for operand in operands if operand.device != CPU), CPU)
    inputs = sum(not operand.output for operand in operands)
    allowed = base not in REFUSING_SCALARS and (inputs <= 2 or base in TERNARY_WITH_SCALARS)
    scalars = 0
    # The operand that an operator in place writes to is its output too, and an output cannot be a CPU scalar.
    written = operands[0] if base.endswith("_") else None
    for operand in operands:
        if allowed and operand.is_cpu_scalar and not operand.output and operand is not written:
            scalars += 1
            if scalars > 1:
                return "Trying to pass too many CPU scalars to non-CPU kernel!"
        elif operand.device != common:
            return torch_messages.mismatch_of_operands(common, operand.device)
    return None


def _lists(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """An operator over lists runs place by place; a tensor beside the lists takes part at each place."""
    if base.startswith("_foreach_copy"):
        return None
    lists = [list(group) for _, group in groupby(operands, lambda operand: operand.argument)]
    single = [group[0] for group in lists if len(group) == 1 and len(lists[0]) > 1]
    several = [group for group in lists if not (len(group) == 1 and len(lists[0]) > 1)]
    elementwise = base.removeprefix("_foreach_")
    for row in zip(*several, strict=False):
        together = [*row, *single]
        if any(operand.device != CPU for operand in together):
            message = _operands(elementwise, together)
            if message:
                return message
    return None


def _index(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """Indexing takes indices from the CPU, or from where the tensor itself is; those to write at, from anywhere."""
    indexed = next(operand for operand in operands if operand.argument == "self")
    for operand in operands if "put" not in base else ():
        if operand.argument == "indices" and operand.device not in (CPU, indexed.device):
            return f"indices should be either on cpu or on the same device as the indexed tensor ({indexed.device})"
    for operand in operands:
        if operand.argument == "values" and operand.device != indexed.device and operand.dims != 0:
            return torch_messages.mismatch_of_operands(indexed.device, operand.device)
        if operand.output and operand.device != indexed.device:
            return torch_messages.mismatch_of_operands(indexed.device, operand.device)
    return None


def _where(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """A choice takes any number of CPU scalars."""
    common = next(operand.device for operand in operands if operand.device != CPU)
    for operand in operands:
        if operand.device != common and (operand.output or operand.dims != 0):
            return torch_messages.mismatch_of_operands(common, operand.device)
    return None


def _masked_fill(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """Filling takes its mask from where the tensor is; a GPU takes its value, a scalar, from anywhere."""
    filled = next(operand for operand in operands if operand.argument == "self")
    for operand in operands:
        if operand.argument == "mask" and operand.device != filled.device:
            return (
                f"expected self and mask to be on the same device, but got mask on {operand.device} "
                f"and self on {filled.device}"
            )
        if operand.argument == "value" and filled.device == CPU != operand.device:
            return "masked_fill_: Expected inputs to be on same device"
    return None


def _convolution(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """A convolution compares kinds of devices first, then indices."""
    given = operands[0]
    for operand in operands[1:]:
        if (given.device == CPU) != (operand.device == CPU):
            return torch_messages.wrong_convolution(
                operand.argument, tensor_type(given), tensor_type(operand), with_advice=given.device != CPU
            )
    for operand in operands[1:]:
        if operand.device != given.device:
            if operand.argument == "bias":
                return torch_messages.mismatch_of_operands(given.device, operand.device)
            return torch_messages.mismatch(
                version, given.device, operand.argument, operand.device, "wrapper_CUDA__cudnn_convolution"
            )
    return None


def _addcmul(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """A product that is added takes its last factor as a CPU scalar, from torch 2.7 on."""
    if version < (2, 7):
        return _operands(base, operands)
    inputs = [operand for operand in operands if not operand.output]
    allowed = [operand for operand in inputs if operand.argument == "tensor2" and operand.is_cpu_scalar]
    message = _operands(base, [operand for operand in operands if operand not in allowed])
    if message and any(operand.is_cpu_scalar for operand in inputs if operand.argument == "self"):
        return "CPU Scalar support for self argument is not supported when calling addcmul on CUDA tensors."
    if message and any(operand.is_cpu_scalar for operand in inputs if operand.argument == "tensor1"):
        return (
            "CPU Scalar support for tensor1 argument is not supported when calling addcmul on CUDA tensors. However, "
            "CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."
        )
    return message


def _free(base: str, operands: Sequence[Operand], version: tuple[int, int]) -> str | None:
    """Copies cross devices."""
    return None


def tensor_type(operand: Operand) -> str:
    """The type's name as ``Tensor.type()`` has it."""
    return f"torch.{'' if operand.device == CPU else 'cuda.'}{operand.dtype}"


_SPECIAL = {
    "_index_put_impl": _index,
    "_to_copy": _free,
    "_unsafe_index": _index,
    "addcmul": _addcmul,
    "convolution": _convolution,
    "copy": _free,
    "fill": _free,
    "index": _index,
    "index_put": _index,
    "masked_fill": _masked_fill,
    "where": _where,
}
