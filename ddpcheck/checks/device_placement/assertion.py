"""Is everything of a rank on devices of its own? The judge of device-placement, as an assertion states it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ddpcheck.checks.device_placement.misplaced_tensors import elsewhere
from ddpcheck.evidence.placement import BATCH, Whereabouts, by_rank, is_gpu, last_home
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing, ranks_text


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...]:
    """Hold every rank's whereabouts against the devices that are its own, and the ranks' against each other's."""
    facts = [msgspec.convert(one, Whereabouts) for one in said]
    ground = _unusable(facts) or _nothing(facts) or _not_there(facts)
    if ground is not None:  # nothing can be held against devices that are not known, or not there
        return (ground,)
    model = _model(facts)
    found = [f for f in (model, _device_ids(facts)) if f is not None]
    if model is None:
        # What else is elsewhere, or shared, where the model is, follows from that.
        found += [f for f in (_shared(facts), _state(facts), _left(facts)) if f is not None]
        found += [f for kind in BATCH if (f := _batch(facts, kind)) is not None]
    if not found and (current := _current(facts)) is not None:  # where more is wrong, it is one mistake with that
        found.append(current)
    return tuple(found)


def _finding(
    ranks: Mapping[int, Any] | Sequence[int], subject: str, severity: Any = "error", *, rule: str, **parts: str
) -> Finding:
    return Finding(rule=rule, severity=severity, ranks=tuple(sorted(ranks)), subject=subject, **parts)  # type: ignore[arg-type]


_BATCH_RULES = {"inputs": "misplaced-inputs", "targets": "misplaced-targets", "outputs": "misplaced-outputs"}


# --- whether there is something to judge


def _unusable(facts: Sequence[Whereabouts]) -> Finding | None:
    wrong = {rank: f.wrong for rank, f in enumerate(facts) if f.wrong}
    if not wrong:
        return None
    return _finding(
        wrong,
        "the assertion's arguments",
        rule="unusable-arguments",
        expected="a module, tensors or nests of them, and the devices of each rank as torch.device takes them",
        found=by_rank(wrong),
        advice="Pass the model (wrapped or not), what it was given and has made, and name devices by devices_per_rank "
        "or devices, or by neither.",
    )


def _nothing(facts: Sequence[Whereabouts]) -> Finding | None:
    if any(f.model or f.batch for f in facts):
        return None
    return _finding(
        range(len(facts)),
        "the model",
        rule="model-without-tensors",
        expected="a model with parameters or buffers",
        found="no tensor in it on any rank: nothing was checked",
        advice="Pass the model that is trained; for one without parameters, pass inputs and outputs as well.",
    )


def _not_there(facts: Sequence[Whereabouts]) -> Finding | None:
    missing = {}
    for rank, f in enumerate(facts):
        if f.visible is not None:
            beyond = [d for d in f.own if d.startswith("cuda:") and int(d[5:]) >= f.visible]
            if beyond:
                missing[rank] = f"{listing(beyond)}, where it sees {_gpus(f.visible)}"
    if not missing:
        return None
    first = facts[min(missing)]
    cause = ""
    if len(facts) > 1 and all(f.own == [f"cuda:{rank}"] for rank, f in enumerate(facts)):
        if any(f.local_rank != rank for rank, f in enumerate(facts)):
            cause = "the global rank was used as the index of the device"
    elif first.stated:
        cause = f"{first.stated} takes more GPUs than there are"
    return _finding(
        missing,
        "the ranks' devices",
        rule="missing-device",
        expected="every device that a rank is to have to exist",
        found=by_rank(missing),
        cause=cause,
        advice="Start as many ranks as there are GPUs for, with the local rank as index, or run it in "
        "ddpcheck.simulated_devices(n).",
    )


def _gpus(number: int) -> str:
    if number < 2:
        return "1 GPU (cuda:0)" if number else "no GPU"
    return f"{number} GPUs (cuda:0 to cuda:{number - 1})"


# --- the model


def _model(facts: Sequence[Whereabouts]) -> Finding | None:
    strays = {
        rank: found
        for rank, f in enumerate(facts)
        if (found := {name: device for name, device in f.model.items() if device not in f.own})
    }
    if not strays:
        return None
    finding = elsewhere(facts, strays)
    shared = "; ".join(f"{_names(ranks)[0]} is shared by {ranks_text(ranks)}" for ranks in _sharers(facts).values())
    if not shared:
        return finding
    return msgspec.structs.replace(finding, found=f"{finding.found}; so {shared}")


Gpu = tuple[str, str]
"""The machine, and what names the GPU on it."""


def _sharers(facts: Sequence[Whereabouts]) -> dict[Gpu, dict[int, str]]:
    """GPUs on which several ranks have tensors of their models by accident: these ranks, and what each calls it."""
    users: dict[Gpu, dict[int, str]] = defaultdict(dict)
    for rank, f in enumerate(facts):
        for device in dict.fromkeys(f.model.values()):
            if is_gpu(device):
                users[f.gpu(device)].setdefault(rank, device)
    return {g: ranks for g, ranks in users.items() if len(ranks) > 1 and not _on_purpose(facts, g, ranks)}


def _on_purpose(facts: Sequence[Whereabouts], gpu: Gpu, ranks: Mapping[int, str]) -> bool:
    """The ranks were given this GPU together by the runtime, or it was said that they share."""
    return all(facts[r].sharing or (is_gpu(facts[r].given) and facts[r].gpu(facts[r].given) == gpu) for r in ranks)


def _names(ranks: Mapping[int, str]) -> list[str]:
    """What these ranks call a GPU."""
    return list(dict.fromkeys(ranks.values()))


def _shared(facts: Sequence[Whereabouts]) -> Finding | None:
    users = _sharers(facts)
    if not users:
        return None
    told = []
    for (_, name), ranks in users.items():
        names = _names(ranks)
        itself = f" ({name})" if name not in names else ""
        told.append(f"{' and '.join(names)}{itself} used by {ranks_text(ranks)}")
    involved = {rank for ranks in users.values() for rank in ranks}
    first = facts[min(involved)]
    if any(len(_names(ranks)) > 1 for ranks in users.values()):
        cause = "each rank sees that one GPU under a number of its own: their CUDA_VISIBLE_DEVICES overlap"
    elif first.stated:
        cause = f"what {first.stated} gives to the ranks overlaps"
    else:
        cause = "the device is not chosen by the local rank"
    return _finding(
        sorted(involved),
        _names(next(iter(users.values())))[0],
        rule="shared-gpu",
        expected="each rank to have devices that no other rank of the machine uses",
        found="; ".join(told),
        cause=cause,
        advice="Give rank r of k devices each the devices k*r to k*r+k-1. Where ranks are meant to share a GPU (gloo, "
        "or NCCL 2.30 and later), say sharing=True.",
    )


# --- what DDP was told


def _device_ids(facts: Sequence[Whereabouts]) -> Finding | None:
    wrong = {}
    for rank, f in enumerate(facts):
        places = list(dict.fromkeys(f.model.values()))
        told = [f"device_ids {f.device_ids}"] if f.device_ids else []
        if f.output_device is not None and [f.output_device] != f.device_ids:
            told.append(f"output_device {f.output_device}")
        if not told or not places:
            continue
        indices = [*(f.device_ids or []), *([f.output_device] if f.output_device is not None else [])]
        if len(places) > 1 or any(places[0].rpartition(":")[2] != str(i) for i in indices):
            wrong[rank] = f"{' and '.join(told)} for a module on {listing(places)}"
    if not wrong:
        return None
    several = any(len(set(facts[rank].model.values())) > 1 for rank in wrong)
    return _finding(
        wrong,
        "device_ids of DistributedDataParallel",
        rule="wrong-device-ids",
        expected="device_ids and output_device to name the one GPU that the module lies on, or not to be given",
        found=by_rank(wrong),
        cause=(
            "a part of the module was moved after the wrap: DDP refuses device_ids for a module on several devices"
            if several
            else "the module was moved after the wrap, or to another device than DDP was given, which DDP does not see"
        ),
        advice="Move the module first, then wrap it with device_ids=[its device's index]; for a module on several "
        "devices leave both out.",
    )


# --- what goes in and comes out


def _batch(facts: Sequence[Whereabouts], kind: str) -> Finding | None:
    strays: dict[int, dict[str, str]] = {}
    wanted: dict[int, str] = {}
    for rank, f in enumerate(facts):
        allowed = _allowed(f, kind)
        found = {name: device for name, device in f.batch.get(kind, {}).items() if device not in allowed}
        if found:
            strays[rank], wanted[rank] = found, allowed[0]
    if not strays:
        return None
    names = list(dict.fromkeys(name for found in strays.values() for name in found))
    devices = {rank: listing(dict.fromkeys(found.values())) for rank, found in strays.items()}
    cause, advice = _batch_cause(facts, kind, devices)
    # The model's end is its last parameter's device, of several, for want of a stated order.
    if kind != "inputs" and any(not facts[r].order and len(set(facts[r].model.values())) > 1 for r in strays):
        advice += " Where the model ends was judged by its last parameter: else list `devices` in the order of its way."
    where = {"inputs": "where the model takes them", "targets": "where the outputs are", "outputs": "on its device"}
    return _finding(
        strays,
        names[0],
        rule=_BATCH_RULES[kind],
        expected=(f"the model's {kind}" if kind != "targets" else "targets")
        + f" to be {where[kind]}: {by_rank(wanted, most=4)}",
        found=f"{listing(names, 3)} on {by_rank(devices, most=4)}",
        cause=cause,
        advice=advice,
    )


def _allowed(f: Whereabouts, kind: str) -> list[str]:
    """Devices on which tensors of this kind may be, the most natural first."""
    places = list(dict.fromkeys(f.model.values()))
    last = last_home(f)
    if kind == "outputs":
        return [last] if last else f.own
    if kind == "targets":
        return list(dict.fromkeys(f.batch.get("outputs", {}).values())) or ([last] if last else f.own)
    if f.device_ids or len(places) > 1:  # DDP, or the module itself, moves them
        return list(dict.fromkeys([*places[:1], *f.own, "cpu"]))
    return places or f.own


def _batch_cause(facts: Sequence[Whereabouts], kind: str, devices: Mapping[int, str]) -> tuple[str, str]:
    rank = min(devices)
    found, several = devices[rank], len(set(facts[rank].model.values())) > 1
    if kind == "outputs":
        if found == "cpu":
            return (
                "they were moved to the CPU before they were handed back",
                "Return the outputs where the model made them.",
            )
        cause = "the model ends on its last device, and these were not made there" if several else ""
        return cause, "Return the outputs of the last layer where it made them."
    if several and kind == "targets" and found == next(iter(facts[rank].model.values())):
        cause = "they are where the model begins, while a model on several devices ends on its last"
    elif found == "cpu":
        cause = "the batch comes from the loader on the CPU, and was not moved"
    elif len(devices) > 1 and set(devices.values()) == {"cuda:0"}:
        cause = "every rank moved them to cuda:0: `cuda` without an index, and no torch.cuda.set_device before"
    else:
        cause = "they were moved to another device than the model's"
    if kind == "targets":
        return cause, "Move them to where the outputs are: targets.to(outputs.device)."
    return cause, "Move them with inputs.to(device), or give DDP device_ids=[index], which moves them."


# --- what goes along


def _state(facts: Sequence[Whereabouts]) -> Finding | None:
    apart = {rank: found for rank, f in enumerate(facts) if (found := [s for s in f.state if s.device != s.wanted])}
    if not apart:
        return None
    first = next(iter(apart.values()))[0]
    names = list(dict.fromkeys(s.name for found in apart.values() for s in found))
    return _finding(
        apart,
        first.name,
        rule="misplaced-optimizer-state",
        expected="the optimizer's state of each parameter to be on that parameter's device: "
        + by_rank({r: listing(dict.fromkeys(s.wanted for s in found)) for r, found in apart.items()}, most=4),
        found=f"{listing(names, 3)} on "
        + by_rank({r: listing(dict.fromkeys(s.device for s in found)) for r, found in apart.items()}, most=4),
        cause="the model was moved after the optimizer's first step, or the state was put in by hand",
        advice="Move the model before the optimizer steps, and load its state by optimizer.load_state_dict(), which "
        "moves it to the parameters.",
    )


def _left(facts: Sequence[Whereabouts]) -> Finding | None:
    """What a rank holds on another rank's GPU, beside the model."""
    owners = {f.gpu(d): rank for rank, f in enumerate(facts) for d in f.own if is_gpu(d)}
    left: dict[int, dict[str, str]] = {}
    for rank, f in enumerate(facts):
        mine = {f.gpu(d) for d in f.own}
        found = {d: what for d, what in f.left.items() if f.gpu(d) in owners and f.gpu(d) not in mine}
        if found and not f.sharing:
            left[rank] = found
    if not left:
        return None
    rank = min(left)
    device = next(iter(left[rank]))
    owner = owners[facts[rank].gpu(device)]
    default = all(list(found) == ["cuda:0"] for found in left.values())
    return _finding(
        left,
        device,
        rule="memory-on-another-gpu",
        expected="nothing of a rank on another rank's device",
        found=by_rank(
            {r: ", ".join(f"{what} on {d}" for d, what in found.items()) for r, found in left.items()}, most=4
        )
        + f"; {device} is rank {owner}'s",
        cause=(
            "made while cuda:0 was still the current device, or loaded without map_location from a checkpoint that "
            "the rank of cuda:0 saved"
            if default
            else "loaded without map_location, or made with a fixed index"
        ),
        advice="Call torch.cuda.set_device(local_rank) before anything is made, load with map_location, and let go of "
        "what is not needed.",
    )


def _current(facts: Sequence[Whereabouts]) -> Finding | None:
    strange = {
        rank: f.current
        for rank, f in enumerate(facts)
        if f.current and any(is_gpu(d) for d in f.own) and f.current not in f.own
    }
    if not strange:
        return None
    return _finding(
        strange,
        "the current device",
        rule="wrong-current-device",
        severity="warning",
        expected="the current device of each rank to be one of its own: "
        + by_rank({r: facts[r].own[0] for r in strange}, most=4),
        found=by_rank(strange, most=4),
        cause="torch.cuda.set_device was not called: `cuda` without an index, and an NCCL barrier, mean this device",
        advice="Call torch.cuda.set_device(the rank's first device) before anything is made.",
    )
