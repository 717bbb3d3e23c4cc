"""Does a load keep a rank on its own device?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import LOADS, MOST_LOADS, SAVES, Files, Touch, done, files_of, next_load, shown
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing


def judge(world: World) -> Judged:
    """Look at the devices that loads put tensors on."""
    files = files_of(world)
    loads = [t for reads in files.reads.values() for t in reads if t.record.how in LOADS and t.record.devices]
    wrong: dict[object, list[Touch]] = defaultdict(list)
    risky: dict[object, list[Touch]] = defaultdict(list)
    for t in sorted(loads, key=lambda t: (t.number, t.start))[:MOST_LOADS]:
        own = _own_device(t.rank)
        elsewhere = [d for d in t.record.devices if d.startswith("cuda") and own is not None and d != own]
        if elsewhere:
            wrong[t.where].append(t)
        elif not t.record.device and _is_from_another(files, t) and _is_state(files, t):
            risky[t.where].append(t)
    misled = [landed_elsewhere(group, _own_device(group[0].rank) or "") for group in wrong.values()]
    findings = [*misled, *(_by_luck(group) for group in risky.values())]
    because = "" if loads else "ddpcheck saw no load of tensors"
    return Judged(checked=len(loads), findings=tuple(findings), skipped_because=because)


def _own_device(rank: Rank) -> str | None:
    """The GPU that a rank trains on; None for one that trains on the CPU."""
    devices = {d for w in rank.of(ev.Wrapped) for d in w.devices}
    gpus = {d for d in devices if d.startswith("cuda")}
    return gpus.pop() if len(gpus) == 1 and len(devices) == 1 else None


def _is_from_another(files: Files, load: Touch) -> bool:
    """Whether another rank has saved it; of what this run has not saved, rank 0 is taken to be the one."""
    savers = {t.number for t in files.written_to(load.path) if t.start < load.start or t.rank is not load.rank}
    return load.number not in (savers or {0})


def _is_state(files: Files, load: Touch) -> bool:
    """Whether it is the state of a training, and not data: it was saved as such, or goes into a module."""
    if any(t.record.how in SAVES and t.record.keys for t in files.written_to(load.path)):
        return True
    following = next_load(load)
    return any(load.start < s.n < following for s in load.rank.of(ev.StateLoaded))


def landed_elsewhere(loads: Sequence[Touch], own: str) -> Finding:
    """The finding on loads that have put tensors on a GPU which is not their rank's; ``own`` is that of the first."""
    first = loads[0]
    given = f"map_location={first.record.device}" if first.record.device else "no map_location"
    return Finding(
        rule="load-on-wrong-gpu",
        ranks=tuple(sorted({t.number for t in loads})),
        subject=f"file {shown(first)}",
        expected=f"what rank {first.number} loads to land on its own device, {own}, or on the CPU",
        found=f"tensors on {listing(first.record.devices)} after {done(first)} with {given}",
        cause=""
        if first.record.device
        else "without map_location a tensor goes back to the device that it was saved from",
        advice='Load with map_location="cpu", or with the device of this rank.',
        where=first.where,
        count=len(loads),
        links=(f"file {first.path}",),
    )


def _by_luck(loads: list[Touch]) -> Finding:
    first = loads[0]
    return Finding(
        rule="no-map-location",
        severity="warning",
        ranks=tuple(sorted({t.number for t in loads})),
        subject=f"file {shown(first)}",
        expected="a load to say where the tensors are to go: map_location",
        found=f"{done(first)} without it, of what another rank has saved: right on the CPU, but tensors saved from a "
        "GPU go back to that GPU, on every rank",
        advice='Load with map_location="cpu", or with the device of this rank.',
        where=first.where,
        count=len(loads),
        links=(f"file {first.path}",),
    )
