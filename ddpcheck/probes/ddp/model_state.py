"""A model's state as a rank holds it: digests first, elements only where they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence.model_state import ModelFacts, TensorFacts, WorstDifference
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS, reduced_by
from ddpcheck.probes.digests import readable_memory, sparse_tensors
from ddpcheck.probes.digests.exact_digests import Unreadable, digest_each, digest_of_parts, tensor_bytes
from ddpcheck.probes.layouts import held_alike
from ddpcheck.probes.layouts.held_alike import HeldAlike
from ddpcheck.vocabulary.wording import listing

Named = Iterable[tuple[str, "torch.Tensor | None"]]


def bare(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, without DistributedDataParallel or torch.compile around it."""
    while True:
        if isinstance(module, DistributedDataParallel):
            module = module.module
        elif "_orig_mod" in module._modules and isinstance(inner := module._modules["_orig_mod"], torch.nn.Module):
            module = inner
        else:
            return module


def gradients(module: torch.nn.Module) -> list[tuple[str, torch.Tensor | None]]:
    return [(name, p.grad) for name, p in named_parameters(module) if p.requires_grad]


def parameters(module: torch.nn.Module) -> list[tuple[str, torch.Tensor | None]]:
    return [*named_parameters(module)]


def named_parameters(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The parameters of the module itself, with those that torch takes from it and leaves to its wrapper.

    DDP over a dimension of a mesh does so with DTensors: from the first forward on, the module has others in their
    place, over the same memory, which are no parameters.
    """
    found: dict[str, torch.Tensor] = dict(bare(module).named_parameters())
    wrapper = held_alike.wrapper_of(module)
    if wrapper is not None and held_alike.is_on_mesh(wrapper):
        known = [(WRAPPERS.owner(parameter), parameter) for parameter in reduced_by(wrapper)]
        found |= {owner[0]: parameter for owner, parameter in known if owner is not None}
    return list(found.items())


def buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor | None]]:
    return [(f"{name} (buffer)", b) for name, b in bare(module).named_buffers()]


def facts(module: torch.nn.Module, tensors: Named, rtol: float = 0.0, atol: float = 0.0) -> ModelFacts:
    """What this rank says of these tensors, and of how DDP treats the model."""
    of_shards = [
        f"{name} ({kind})"
        for name, p in bare(module).named_parameters()
        if (kind := readable_memory.unseen(p)) not in ("", readable_memory.DTENSOR) and not p.is_meta
    ]
    if of_shards:
        raise ValueError(f"{listing(of_shards)}: ddpcheck does not compare FSDP1's shards, or tensors without memory")
    named = list(tensors)
    alike = held_alike.of_model(module, dict(named_parameters(module)), named)
    return ModelFacts(
        tensors=_described(named, alike),
        wrapped=isinstance(module, DistributedDataParallel),
        rtol=rtol,
        atol=atol,
    )


def _described(
    tensors: Sequence[tuple[str, torch.Tensor | None]], alike: Mapping[str, HeldAlike]
) -> dict[str, TensorFacts]:
    """Each tensor by its name; what is on a GPU is digested there, all of it before anybody waits for a result."""
    present = [tensor for _, tensor in tensors if tensor is not None]
    if any(tensor.is_meta for tensor in present):
        raise ValueError("a tensor on the meta device has no elements to compare; materialise the model first")
    if any(tensor.is_nested for tensor in present):
        raise Unreadable("a nested tensor has rows of its own on each rank: ddpcheck does not compare it")
    own = {name: _own_part(tensor) for name, tensor in tensors if tensor is not None}
    digests = iter(_digests(list(own.values())))
    found = {}
    for name, _ in tensors:
        part, (placements, holders) = own.get(name), alike[name]
        found[name] = (
            TensorFacts(
                digest=next(digests),
                dtype=_kind(part),
                shape=tuple(part.shape),
                placements=placements,
                holders=holders,
            )
            if part is not None
            else TensorFacts(present=False, placements=placements, holders=holders)
        )
    return found


def _own_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a DTensor that this rank has; any other tensor as it is."""
    if not readable_memory.is_dtensor(tensor):
        return tensor
    part = readable_memory.strided(tensor)
    if part is None:
        raise Unreadable("the part of a DTensor that this rank has cannot be looked at: it may still be on its way")
    return part


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"sparse {dtype}" if tensor.layout is torch.sparse_coo else dtype


def _digests(tensors: Sequence[torch.Tensor]) -> list[str]:
    """A digest of each tensor's elements; of a sparse one, of its coordinates and values."""
    parts = [sparse_tensors.packed(tensor) or (tensor,) for tensor in tensors]
    each = iter(digest_each([part for of in parts for part in of]))
    told = [[next(each) for _ in of] for of in parts]
    return [digest_of_parts([one.encode() for one in of]) if len(of) > 1 else of[0] for of in told]


# --- the elements, where digests differ


def answers(tensors: Named, folder: Path, rank: int) -> dict[str, Callable[[Any], Any]]:
    """What a judge may ask: write these tensors down as the reference, and compare yours with it."""
    by_name = dict(tensors)

    def write(about: dict[str, Any]) -> None:
        for number, (name, reference, _) in enumerate(about["copies"]):
            tensor = by_name.get(name)
            if tensor is not None and reference == rank:
                parts = sparse_tensors.packed(tensor) or (tensor,)
                (folder / f"reference{number}").write_bytes(b"".join(tensor_bytes(part) for part in parts))

    def compare(about: dict[str, Any]) -> dict[str, WorstDifference]:
        found = {}
        for number, (name, reference, holders) in enumerate(about["copies"]):
            tensor = by_name.get(name)
            if tensor is not None and reference != rank and rank in holders:
                found[name] = worst_difference(tensor, (folder / f"reference{number}").read_bytes(), about)
        return found

    return {"write": write, "compare": compare}


def worst_difference(mine: torch.Tensor, reference: bytes, about: dict[str, Any]) -> WorstDifference:
    """Where this tensor is farthest from the reference's elements, and in how many it is not equal.

    Two NaN in one place are equal; a NaN against a number is infinitely far.
    """
    held = sparse_tensors.packed(mine)
    if held is not None:
        coordinates, *sides = sparse_tensors.side_by_side(
            (held[0].cpu(), held[1].cpu()), sparse_tensors.unpacked(reference, mine)
        )
        worst = _worst(sides[0], sides[1], about)
        row, *inner = worst.place or (0,)
        where = coordinates[:, row].tolist() if coordinates.shape[1] else []
        return msgspec.structs.replace(worst, place=(*where, *inner), of=mine.numel())
    plain = readable_memory.local(mine)
    if plain is None:
        raise Unreadable(f"the elements of a {type(mine).__name__} cannot be looked at")
    own = plain.cpu()
    if not reference:
        return _worst(own, torch.empty_like(own), about)
    return _worst(own, torch.frombuffer(bytearray(reference), dtype=own.dtype).reshape(own.shape), about)


def _worst(own: torch.Tensor, other: torch.Tensor, about: dict[str, Any]) -> WorstDifference:
    if not own.numel():
        return WorstDifference(size=0.0, place=(), mine="", reference="", elements=0, of=0)
    if not _has_numbers(own.dtype):
        own, other = own.view(torch.uint8), other.view(torch.uint8)
    wide_own, wide_other = _widened(own), _widened(other)
    gap = (wide_own - wide_other).abs()
    both_nan = wide_own.isnan() & wide_other.isnan()
    same = both_nan | (own == other)
    gap = torch.where(same, torch.zeros_like(gap), torch.nan_to_num(gap, nan=math.inf, posinf=math.inf))
    if not own.is_floating_point() and not own.is_complex():
        gap = torch.where(same, gap, gap.clamp(min=1.0))  # long integers are nearer than a float can tell
    allowed = about["atol"] + about["rtol"] * wide_other.abs()
    beyond = gap > torch.nan_to_num(allowed, nan=0.0)
    # The element to show is the worst of those that are not allowed, if any is not.
    shown = torch.where(beyond, gap, torch.full_like(gap, -1.0)) if bool(beyond.any()) else gap
    flat = int(shown.argmax()) if gap.numel() else 0
    place = [int(i) for i in torch.unravel_index(torch.tensor(flat), gap.shape)] if gap.dim() else []
    return WorstDifference(
        size=float(gap.flatten()[flat]),
        place=tuple(place),
        mine=_number(own.flatten()[flat]),
        reference=_number(other.flatten()[flat]),
        elements=int(beyond.sum()),
        of=own.numel(),
        scale=_scale(wide_own, wide_other),
    )


def _has_numbers(dtype: torch.dtype) -> bool:
    """Whether torch can turn elements of a type into numbers; some hold two in a byte."""
    try:
        _widened(torch.empty(1, dtype=dtype))
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _number(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _scale(own: torch.Tensor, other: torch.Tensor) -> float | None:
    """The one factor between both, if every element says the same; a hint at sums in place of means."""
    if own.is_complex() or own.numel() < 2:
        return None
    usable = (other.abs() > 1e-12) & own.isfinite() & other.isfinite()
    if int(usable.sum()) < 2:
        return None
    ratios = own[usable] / other[usable]
    first = float(ratios.median())
    return first if bool(((ratios - first).abs() <= 1e-4 * abs(first)).all()) else None
