"""Where real devices run an operation, and where they refuse it: a table written by hand, row by row.

A row is an operation, the tensors it is given, and the rule that real GPUs
follow. The rules are stated here once more, in a few lines each, and share
nothing with the package: sources are torch's documentation, the device checks
in its table of operators, and its kernels. ``tests/gpu/test_truth_table.py``
runs every row on real GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

REFUSED = "refused"
"""What a rule says where real devices raise."""

Rule = Callable[[Sequence[str], Sequence[str]], str]
"""From the tensors' kinds and devices to the device of the result, or REFUSED."""


# --- tensors, by kind

KINDS: dict[str, Callable[[], Tensor]] = {
    "matrix": lambda: torch.arange(12.0).reshape(3, 4) / 7 - 0.5,
    "square": lambda: torch.arange(16.0).reshape(4, 4) / 9 - 0.5,
    "vector": lambda: torch.arange(4.0) / 3 - 0.25,
    "scalar": lambda: torch.tensor(0.75),
    "mask": lambda: torch.arange(12).reshape(3, 4) % 3 == 0,
    "truth": lambda: torch.tensor(True),
    "rows": lambda: torch.tensor([2, 0, 1]),
    "labels": lambda: torch.tensor([1, 3, 0]),
    "places": lambda: torch.tensor([[0, 1, 2, 0], [2, 1, 0, 1], [1, 1, 0, 2]]),
    "images": lambda: torch.arange(24.0).reshape(1, 3, 8) / 11,
    "kernels": lambda: torch.arange(9.0).reshape(3, 3, 1) / 5,
    "channels": lambda: torch.tensor([0.5, -0.25, 1.0]),
    "ones": lambda: torch.ones(4),
    "zeros": lambda: torch.zeros(4),
}
SCALARS = ("scalar", "truth")


def tensor(kind: str, device: Any = "cpu") -> Tensor:
    """One of these tensors, made on the CPU and moved."""
    return KINDS[kind]().to(device)


# --- rules


def same(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """All tensors on one device."""
    return devices[0] if len(set(devices)) == 1 else REFUSED


def elementwise(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """One CPU scalar may stand beside tensors on a GPU."""
    if set(devices) == {"cpu"}:
        return "cpu"
    others = [device for kind, device in zip(kinds, devices, strict=True) if not (kind in SCALARS and device == "cpu")]
    if len(others) < len(devices) - 1:
        return REFUSED
    return others[0] if len(set(others)) == 1 and others[0] != "cpu" else REFUSED


def in_place(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """As elementwise, and the result is written to the first tensor: no GPU writes to the CPU."""
    if devices[0] == "cpu" and set(devices) != {"cpu"}:
        return REFUSED
    return elementwise(kinds, devices)


def last_scalar(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """Only the last tensor may be a CPU scalar, and that from torch 2.7 on."""
    if TORCH >= (2, 7) and kinds[-1] in SCALARS and devices[-1] == "cpu":
        return same(kinds[:-1], devices[:-1])
    return same(kinds, devices)


def choice(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """Scalars from anywhere are brought to the first GPU that is named; the others are there."""
    there = next((device for device in devices if device != "cpu"), "cpu")
    others = {device for kind, device in zip(kinds, devices, strict=True) if kind not in SCALARS}
    return there if others <= {there} else REFUSED


def indexed(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """The second tensor has indices: from the CPU, or from where the first is."""
    return devices[0] if devices[1] in ("cpu", devices[0]) else REFUSED


def indexed_to_write(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """Indices come from anywhere, and the third tensor's values, if it is no scalar, from where the first is."""
    return devices[0] if kinds[2] in SCALARS or devices[2] == devices[0] else REFUSED


def masked(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """The mask is where the tensor is; the scalar value as well on the CPU, and for a GPU anywhere."""
    if devices[0] == "cpu" != devices[2]:
        return REFUSED
    return devices[0] if devices[0] == devices[1] else REFUSED


def copied(kinds: Sequence[str], devices: Sequence[str]) -> str:
    """Copies cross devices, and the result is where the first tensor is."""
    return devices[0]


# --- the table


@dataclass(frozen=True)
class Row:
    """An operation, and where it runs."""

    name: str
    run: Callable[..., Tensor]
    kinds: tuple[str, ...]
    rule: Rule
    fake: str = ""
    """Why torch's fake tensors are no witness for it; empty where they are."""

    def verdict(self, devices: Sequence[str]) -> str:
        """The device of the result, or REFUSED."""
        return self.rule(self.kinds, devices)


LENIENT = "a fake operation takes a CPU scalar anywhere"
STAYS = "of a fake choice's scalars, only the CPU's are brought to the GPU"
LINKED = "a fake kernel of CUDA asks for the driver"
OLDER = "" if TORCH >= (2, 13) else "older fake kernels look at some of their tensors"
KERNEL = "the check is in the kernel, which a fake operation does not run"


def _set(x: Tensor, index: Any, value: Tensor) -> Tensor:
    result = x.clone()
    result[index] = value
    return result


def _recurrent(x: Tensor, weight: Tensor) -> Tensor:
    hidden = torch.zeros(1, 1, 4, device=x.device)
    result: Tensor = torch.rnn_tanh(x[:, None], hidden, [weight, weight], False, 1, 0.0, False, False, False)[0]
    return result


ROWS = [
    Row("add", torch.add, ("matrix", "matrix"), elementwise),
    Row("add scalar", torch.add, ("matrix", "scalar"), elementwise),
    Row("scalar times", torch.mul, ("scalar", "matrix"), elementwise),
    Row(
        "sub scalars", torch.sub, ("scalar", "scalar"), elementwise, fake="of two scalars, it keeps the second's device"
    ),
    Row("div", torch.div, ("matrix", "vector"), elementwise),
    Row("pow", torch.pow, ("scalar", "matrix"), elementwise),
    Row("maximum", torch.maximum, ("matrix", "scalar"), elementwise),
    Row("atan2", torch.atan2, ("matrix", "scalar"), elementwise),
    Row("compare", torch.lt, ("matrix", "scalar"), elementwise),
    Row("equal to", torch.eq, ("matrix", "matrix"), elementwise),
    Row("logical", torch.logical_and, ("mask", "truth"), elementwise),
    Row("add in place", lambda x, y: x.clone().add_(y), ("matrix", "matrix"), in_place),
    Row("scale in place", lambda x, y: x.clone().mul_(y), ("matrix", "scalar"), in_place),
    Row("sum scalars in place", lambda x, y: x.clone().add_(y), ("scalar", "scalar"), in_place, fake=LENIENT),
    Row("lerp", torch.lerp, ("matrix", "matrix", "scalar"), elementwise),
    Row("clamp", lambda x, low: torch.clamp(x, min=low), ("matrix", "scalar"), same, fake=LENIENT),
    Row("clamp_min", torch.clamp_min, ("matrix", "scalar"), same, fake=LENIENT),
    Row(
        "clamp both", lambda x, low, high: torch.clamp(x, low, high), ("matrix", "scalar", "scalar"), same, fake=LENIENT
    ),
    Row("addcmul", torch.addcmul, ("matrix", "matrix", "matrix"), same),
    Row("addcmul scalar", torch.addcmul, ("matrix", "matrix", "scalar"), last_scalar, fake=LENIENT),
    Row("addcdiv scalar", torch.addcdiv, ("matrix", "matrix", "scalar"), same, fake=LENIENT),
    Row("where", torch.where, ("mask", "matrix", "matrix"), choice),
    Row("where scalars", torch.where, ("mask", "scalar", "scalar"), choice, fake=STAYS),
    Row("where by scalar", torch.where, ("truth", "matrix", "scalar"), choice, fake=STAYS),
    Row("masked_fill", lambda x, m, v: x.masked_fill(m, v), ("matrix", "mask", "scalar"), masked, fake=KERNEL),
    Row("masked_select", torch.masked_select, ("matrix", "mask"), same, fake="its shape depends on values"),
    Row("index", lambda x, i: x[i], ("matrix", "rows"), indexed, fake=KERNEL),
    Row("index by mask", lambda x, m: x[m], ("matrix", "mask"), indexed, fake="its shape depends on values"),
    Row("index to write", _set, ("matrix", "rows", "matrix"), indexed_to_write, fake=KERNEL),
    Row("index to write scalar", _set, ("matrix", "rows", "scalar"), indexed_to_write, fake=KERNEL),
    Row("index to write by mask", _set, ("matrix", "mask", "scalar"), indexed_to_write, fake=KERNEL),
    Row("slice to write", lambda x, v: _set(x, slice(0, 3), v), ("matrix", "matrix"), copied, fake=LINKED),
    Row("copy_", lambda x, y: x.clone().copy_(y), ("matrix", "matrix"), copied, fake=LINKED),
    Row("fill_", lambda x, y: x.clone().fill_(y), ("matrix", "scalar"), copied, fake=LENIENT),
    Row("index_select", lambda x, i: x.index_select(0, i), ("matrix", "rows"), same),
    Row("gather", lambda x, i: x.gather(0, i), ("matrix", "places"), same),
    Row("scatter_add", lambda x, i, y: x.scatter_add(0, i, y), ("matrix", "places", "matrix"), same),
    Row("index_add", lambda x, i, y: x.index_add(0, i, y), ("matrix", "rows", "matrix"), same, fake=OLDER),
    Row("take", torch.take, ("matrix", "rows"), same),
    Row("mm", torch.mm, ("matrix", "square"), same),
    Row("matmul vector", torch.matmul, ("matrix", "vector"), same),
    Row("addmm", torch.addmm, ("matrix", "matrix", "square"), same),
    Row("addmm scalar", torch.addmm, ("scalar", "matrix", "square"), same, fake=LENIENT),
    Row(
        "baddbmm",
        lambda b, x, y: torch.baddbmm(b, x[None], y[None]),
        ("scalar", "matrix", "square"),
        same,
        fake=LENIENT,
    ),
    Row("bmm", lambda x, y: torch.bmm(x[None], y[None]), ("matrix", "square"), same, fake=LINKED),
    Row("dot", torch.dot, ("vector", "vector"), same),
    Row("outer", torch.outer, ("vector", "vector"), elementwise),
    Row("linear", F.linear, ("matrix", "square", "vector"), same),
    Row("linear without bias", F.linear, ("matrix", "square"), same),
    Row("cat", lambda x, y: torch.cat([x, y]), ("matrix", "matrix"), same),
    Row("stack", lambda x, y: torch.stack([x, y]), ("matrix", "matrix"), same),
    Row("stack scalars", lambda x, y: torch.stack([x, y]), ("scalar", "scalar"), same, fake=LENIENT),
    Row("embedding", F.embedding, ("rows", "matrix"), same),
    Row("conv1d", F.conv1d, ("images", "kernels", "channels"), same, fake=KERNEL),
    Row("conv1d without bias", F.conv1d, ("images", "kernels"), same, fake=KERNEL),
    Row("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), ("matrix", "ones", "vector"), same),
    Row("batch_norm", lambda x, m, v: F.batch_norm(x, m, v), ("matrix", "zeros", "ones"), same),
    Row("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), ("matrix", "ones", "vector"), same),
    Row("prelu", F.prelu, ("matrix", "vector"), elementwise),
    Row("cross_entropy", F.cross_entropy, ("matrix", "labels"), same),
    Row("weighted cross_entropy", lambda x, t, w: F.cross_entropy(x, t, w), ("matrix", "labels", "ones"), same),
    Row("nll_loss", F.nll_loss, ("matrix", "labels"), same),
    Row("mse_loss", F.mse_loss, ("matrix", "matrix"), elementwise),
    Row("l1_loss", F.l1_loss, ("matrix", "matrix"), elementwise),
    Row("huber_loss", F.huber_loss, ("matrix", "matrix"), elementwise),
    Row("smooth_l1_loss", F.smooth_l1_loss, ("matrix", "matrix"), elementwise),
    Row("bce_with_logits", F.binary_cross_entropy_with_logits, ("matrix", "matrix"), elementwise),
    Row("kl_div", lambda x, y: F.kl_div(x, y.exp(), reduction="sum"), ("matrix", "matrix"), elementwise),
    Row("rnn", _recurrent, ("matrix", "square"), same, fake=KERNEL),
    Row(
        "attention",
        lambda q, k: F.scaled_dot_product_attention(q[None], k[None], k[None]),
        ("matrix", "matrix"),
        same,
        fake=LINKED,
    ),
    Row("foreach add", lambda x, y: torch._foreach_add([x], [y])[0], ("matrix", "matrix"), elementwise),
    Row("foreach scale", lambda x, s: torch._foreach_mul([x], s)[0], ("matrix", "scalar"), elementwise, fake=KERNEL),
    Row("softmax", lambda x: torch.softmax(x, 1), ("matrix",), same),
    Row("relu", torch.relu, ("matrix",), same),
    Row("sum", torch.sum, ("matrix",), same),
    Row("argmax", lambda x: x.argmax(1), ("matrix",), same),
    Row("sort", lambda x: x.sort(dim=1).values, ("matrix",), same),
    Row("cdist", torch.cdist, ("matrix", "square"), same),
    Row("einsum", lambda x, y: torch.einsum("ij,jk->ik", x, y), ("matrix", "square"), same),
    Row("type_as", lambda x, y: x.type_as(y), ("matrix", "square"), lambda kinds, devices: devices[1]),
    Row("to other", lambda x, y: x.to(y), ("matrix", "square"), lambda kinds, devices: devices[1]),
    Row("zeros_like", lambda x: torch.zeros_like(x), ("matrix",), same),
    Row("new_ones", lambda x: x.new_ones(2), ("matrix",), same),
]
"""Every row; names are unique."""


def cases(devices: Sequence[str]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Every row with every placement of its tensors over these devices."""
    for row in ROWS:
        for places in product(devices, repeat=len(row.kinds)):
            yield row, places


def outcome(row: Row, places: Sequence[str]) -> tuple[str, Any]:
    """What happens: the result's device and the result, or REFUSED and the error."""
    given = [tensor(kind, device) for kind, device in zip(row.kinds, places, strict=True)]
    try:
        result = row.run(*given)
    except RuntimeError as error:
        return REFUSED, error
    return str(result.device), result
