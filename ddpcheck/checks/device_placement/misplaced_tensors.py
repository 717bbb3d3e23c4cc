"""Parameters and buffers that are on none of their rank's devices: what they have in common, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddpcheck.evidence.placement import Whereabouts, by_rank, is_gpu
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

Strays = Mapping[int, Mapping[str, str]]
"""By rank, and by name: the device on which a tensor is, and should not be."""

_BY_LOCAL_RANK = (
    "Choose the device by the local rank, and move the whole model there before the wrap: model.to(ddp.device), or "
    "k*local_rank to k*local_rank+k-1 for a model on k devices."
)


def elsewhere(facts: Sequence[Whereabouts], strays: Strays) -> Finding:
    """The finding about all of them."""
    names = list(dict.fromkeys(name for found in strays.values() for name in found))
    devices = {rank: " and ".join(dict.fromkeys(found.values())) for rank, found in strays.items()}
    own = {rank: " and ".join(facts[rank].own) for rank in strays}
    total = len(facts[min(strays)].model)
    cause, advice = _cause(facts, strays)
    return Finding(
        rule="misplaced-model",
        ranks=tuple(sorted(strays)),
        subject=names[0],
        expected=f"every parameter and buffer on a device of its rank: {by_rank(own, most=4)}",
        found=f"{len(names)} of {count(total, 'tensor')} elsewhere: {listing(names, 3)} on {by_rank(devices, most=4)}",
        cause=cause,
        advice=advice,
        count=len(names),
    )


def _cause(facts: Sequence[Whereabouts], strays: Strays) -> tuple[str, str]:
    found = {device for tensors in strays.values() for device in tensors.values()}
    first = min(strays)
    if "meta" in found:
        return (
            "they were made on the meta device, and never given memory",
            "Materialise the model (to_empty, then initialise or load) before it is used.",
        )
    if not any(is_gpu(device) for rank in strays for device in facts[rank].own):
        said = facts[first].stated or "the test's mark, with device='cpu',"
        return (
            f"{said} gives the ranks the CPU, and the model was moved to GPUs",
            "Mark the test with device='cuda', or say which devices a rank has: devices_per_rank=1, or devices=[…].",
        )
    if found == {"cpu"}:
        return _left_on_cpu(facts, strays)
    if "cpu" not in found:
        return _on_other_gpus(facts, strays), _BY_LOCAL_RANK
    return "", _BY_LOCAL_RANK


def _left_on_cpu(facts: Sequence[Whereabouts], strays: Strays) -> tuple[str, str]:
    names = list(dict.fromkeys(name for tensors in strays.values() for name in tensors))
    if all(len(tensors) == len(facts[rank].model) for rank, tensors in strays.items()):
        only = "" if len(strays) == len(facts) else " on these ranks"
        return f"the model was never moved to the rank's device{only}", "Call model.to(device) before the wrap."
    advice = "Move the whole model at once, after all of its parts are there: model.to(device)."
    if all(name.endswith("(buffer)") for name in names):
        return "buffers that were registered or replaced after the model had been moved", advice
    part = _common(names)
    which = f"the module {part} was" if part else "these were"
    return f"{which} added or replaced after the model had been moved, or left out of the move", advice


def _common(names: Sequence[str]) -> str:
    """The innermost module that all of these names are within."""
    paths = [name.removesuffix(" (buffer)").split(".")[:-1] for name in names]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _on_other_gpus(facts: Sequence[Whereabouts], strays: Strays) -> str:
    where = {rank: _indices(f.model.values()) for rank, f in enumerate(facts)}
    wanted = {rank: _indices(f.own) for rank, f in enumerate(facts)}
    stray = {device for tensors in strays.values() for device in tensors.values()}
    if stray == {"cuda:0"}:
        return (
            "cuda:0 was taken by default: `cuda` without an index and no torch.cuda.set_device before, or a checkpoint "
            "loaded without map_location"
        )
    if len(facts) > 1 and len(stray) == 1 and all(found == where[0] for found in where.values()):
        return f"the index of the device is fixed: every rank took {stray.pop()}"
    if all(where[rank] == [rank] for rank in strays):
        if len(wanted[min(strays)]) == 1:
            return "the global rank was used as the index of the device, in the place of the local rank"
        return f"the whole model is on the device with the number of its rank, where a rank has {len(wanted[0])}"
    width = len(wanted[min(strays)])
    if width > 1 and all(where[rank] == list(range(rank, rank + width)) for rank in strays):
        return (
            f"rank r took the devices r to r+{width - 1}, where it has {width}*r to {width}*r+{width - 1}: neighbours "
            "overlap"
        )
    shifts = {
        found[0] - wanted[rank][0]
        if [i - found[0] for i in found] == [i - wanted[rank][0] for i in wanted[rank]]
        else None
        for rank, found in where.items()
        if rank in strays and found and wanted[rank]
    }
    shift = shifts.pop() if len(shifts) == 1 else None
    if shift:
        by = "one" if abs(shift) == 1 else str(abs(shift))
        return f"the mapping from ranks to devices is off by {by}: each is {by} too {'high' if shift > 0 else 'low'}"
    return "the device is not chosen by the local rank"


def _indices(devices: Iterable[str]) -> list[int]:
    """The numbers of these GPUs, sorted."""
    return sorted({int(device.partition(":")[2] or 0) for device in devices if is_gpu(device)})
