"""Are modules on the devices where they belong, and does each rank have one of its own?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text


def judge(world: World) -> Judged:
    """The verdict; on the CPU alone there is nothing to misplace, unless a script speaks of devices."""
    wrapped = [w for _, w in world.of(ev.Wrapped)]
    checked = sum(1 for w in wrapped if w.device_ids is not None or any(d != "cpu" for d in w.devices))
    findings = (*_refused(world), *_no_such_device(world), *_shared(world))
    where = "on a GPU" if wrapped else "in DistributedDataParallel"
    because = "" if checked or findings else f"ddpcheck saw no module {where}"
    return Judged(checked=checked, findings=findings, skipped_because=because)


def _raised(world: World, *words: str) -> list[tuple[Rank, ev.Raised]]:
    return [
        (rank, raised)
        for rank, raised in world.of(ev.Raised)
        if all(word in raised.message for word in words) and not raised.lost_peer
    ]


def _refused(world: World) -> Iterator[Finding]:
    """DDP's constructor has refused device_ids."""
    found = _raised(world, "device_ids", "output_device")
    if not found:
        return
    rank, first = found[0]
    where = rank.where(first.site)
    # Devices are named in what was given, too: where the module lies is told last.
    lies = first.message.rpartition("module parameters")[2]
    if lies.count("device(type=") <= 1 and "cpu" in lies:
        cause, advice = _on_cpu(rank)
    elif lies.count("device(type=") > 1:
        cause = "the module lies on several devices, and takes its inputs there itself"
        advice = "Leave device_ids and output_device out for a module on several devices."
    else:
        cause, advice = "", "Give device_ids=[local_rank] for a module on that one GPU, and leave it out otherwise."
    yield Finding(
        rule="wrong-device-ids",
        ranks=tuple(r.rank for r, _ in found),
        subject="DistributedDataParallel",
        expected="device_ids to be given only for a module that lies on that one GPU",
        found=" ".join(first.message.split())[:300].rstrip("."),
        cause=cause,
        advice=advice,
        where=where,
        links=("stop",),
        proof=tuple(line for r, one in found[1:] for line in r.proof(one.site, but=where)),
    )


def _on_cpu(rank: Rank) -> tuple[str, str]:
    """Cause and fix for a module on the CPU: it depends on whether the run has GPUs at all."""
    began = rank.process.began
    if began is not None and not began.gpus:
        return (
            "device_ids is for modules on GPUs, and this process has none",
            "Leave device_ids and output_device out.",
        )
    if "nccl" in rank.joined.backend:
        return (
            "the module was not moved to its GPU before the wrap",
            "Move the module to its GPU first: module.to(device).",
        )
    return (
        "the module is on the CPU: it was not moved to its device before the wrap, or is meant to be there",
        "Leave device_ids out for a training on the CPU; for one on GPUs move the module there first: "
        "module.to(device).",
    )


def _no_such_device(world: World) -> Iterator[Finding]:
    """A device was asked for that this machine has not got."""
    found = _raised(world, "invalid device ordinal")
    if not found:
        return
    rank, first = found[0]
    joined = rank.joined
    cause, advice = "", "Use LOCAL_RANK as the index of the device, and start at most as many ranks as there are GPUs."
    if joined.local_rank is not None and joined.local_rank != joined.rank:
        cause = (
            f"rank {joined.rank} has LOCAL_RANK {joined.local_rank} on its machine: the global rank was used as the "
            "index of the device"
        )
    yield Finding(
        rule="missing-device",
        ranks=tuple(r.rank for r, _ in found),
        subject="the device",
        expected="each rank to take a GPU that its machine has got",
        found=" ".join(first.message.split())[:200],
        cause=cause,
        advice=advice,
        where=rank.where(first.site),
        links=("stop",),
    )


def _shared(world: World) -> Iterator[Finding]:
    """Several ranks of one machine train on one GPU."""
    users: dict[tuple[str, str, str], list[tuple[Rank, ev.Wrapped]]] = defaultdict(list)
    for rank in world:
        host = rank.process.began.host if rank.process.began is not None else ""
        # One that tells NCCL to share a GPU does so on purpose.
        hardware = {p.wrapper: p.hardware for p in rank.of(ev.Placed) if not p.sharing}
        for w in rank.of(ev.Wrapped):
            for device in w.devices:
                # Each rank may see a GPU of its own as number 0: only what names the GPU itself tells.
                name = hardware.get(w.wrapper, {}).get(device, "")
                if device.startswith("cuda") and name:
                    users[host, device, name].append((rank, w))
    told: set[frozenset[int]] = set()
    for (_, device, name), found in users.items():
        ranks = frozenset(rank.rank for rank, _ in found)
        if len(ranks) < 2 or ranks in told:
            continue
        told.add(ranks)
        rank, w = found[0]
        where = rank.where(w.site)
        yield Finding(
            rule="shared-gpu",
            ranks=tuple(sorted(ranks)),
            subject=device,
            expected="each rank to have a GPU of its own",
            found=f"modules of {ranks_text(ranks)} on one GPU: {device}, {name}",
            cause="the device is not chosen by LOCAL_RANK",
            advice="Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) first. Where ranks are meant to share "
            "a GPU, set NCCL_MULTI_RANK_GPU_ENABLE=1 (under gloo, too), or skip this check.",
            where=where,
            links=(f"wrapper {w.wrapper}",),
            proof=tuple(line for r, one in found[1:] for line in r.proof(one.site, but=where)),
        )
