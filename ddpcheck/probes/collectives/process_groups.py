"""Whoever joins the default process group is a rank: joining, leaving, and further groups."""

from __future__ import annotations

import datetime
import os
import uuid
import weakref
from collections import Counter
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import Joined, Joining, JudgedBy, Left
from ddpcheck.probes.all_probes import whole
from ddpcheck.probes.follow_program import COLLECTOR
from ddpcheck.probes.processes import endings, main_thread
from ddpcheck.probes.recording import lone_rank, recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.patching import around

_ADDRESS_WAIT = datetime.timedelta(seconds=3)
"""For the address that rank 0 writes as soon as the group stands, with several nodes: the program waits as well."""

_ALONE = "fake"
"""The backend in which one process plays a rank of a world that is not there."""

_joins = 0
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_same: Counter[str] = Counter()


def watch() -> None:
    """Record every joining and leaving from now on."""
    around(c10d, "init_process_group", _around_init)
    around(c10d, "destroy_process_group", _around_destroy)
    around(c10d, "new_group", _around_new_group)


def group_key(group: Any) -> str:
    """The name of a group in evidence: the same on all its ranks."""
    if group is None or group is getattr(getattr(c10d, "GroupMember", None), "WORLD", None):
        return "world"
    try:
        known = _keys.get(group)
        if known is None:
            known = "world" if group is c10d._get_default_group() else _made_before(group)
        return known
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return "?"


def _made_before(group: Any) -> str:
    """The key of a group that was made before anything was recorded: by its ranks, and the name that they share."""
    ranks = ",".join(map(str, ranks_of(group)))
    return f"{ranks}#{group.group_name}"


def ranks_of(group: Any) -> tuple[int, ...]:
    """The ranks of a group, sorted; None is the default one, which torch 2.4 does not know it to be."""
    return tuple(range(dist.get_world_size())) if group is None else tuple(sorted(dist.get_process_group_ranks(group)))


def _around_init(original: Any) -> Any:
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        writer = recorder.current()
        if writer is None:
            return original(*args, **kwargs)
        site = user_lines.here()
        rank, size = kwargs.get("rank"), kwargs.get("world_size")
        writer.write(
            Joining(
                **writer.next(),
                rank=rank if isinstance(rank, int) and rank >= 0 else whole("RANK"),
                world_size=size if isinstance(size, int) and size >= 0 else whole("WORLD_SIZE"),
                site=site,
            )
        )
        main_thread.begin()
        with recorder.silence():
            result = original(*args, **kwargs)
        _joined(writer, site, kwargs)
        return result

    return init_process_group


def _joined(writer: recorder.Recorder, site: int, kwargs: dict[str, Any]) -> None:
    global _joins
    _joins += 1
    _same.clear()
    endings.gloo_joined |= "gloo" in str(dist.get_backend())
    lone_rank.joined(dist.get_world_size())
    timeout = kwargs.get("timeout")
    writer.write(
        Joined(
            **writer.next(),
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            token=_token(),
            backend=dist.get_backend(),
            local_rank=whole("LOCAL_RANK"),
            site=site,
            timeout=timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else None,
        )
    )
    _meet_collector(writer)


def _meet_collector(writer: recorder.Recorder) -> None:
    """Learn from rank 0 where all evidence is to come together, if there are several nodes."""
    mine = os.environ.get(COLLECTOR)
    if mine is None or dist.get_backend() == _ALONE:
        return
    key = f"ddpcheck/collector/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_joins}"
    try:
        store = c10d._get_default_store()
        if dist.get_rank() == 0:
            store.set(key, mine)
            return
        store.wait([key], _ADDRESS_WAIT)
        address = str(store.get(key).decode())
    except Exception as error:  # as above: this node is judged by itself then
        signal_exceptions.let_through(error)
        return
    if address != mine:
        writer.write(JudgedBy(**writer.next(), address=address))


def _token() -> str:
    """One word for all ranks of this group, by way of the store that they have met at: no collective is added.

    Whoever comes first writes it, so that nobody waits.
    """
    own = uuid.uuid4().hex
    if dist.get_backend() == _ALONE:
        return own
    key = f"ddpcheck/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_joins}"
    try:
        return str(c10d._get_default_store().compare_set(key, "", own).decode())
    except Exception as error:  # a backend without a store; a rank 0 that died at once
        signal_exceptions.let_through(error)
        return f"unknown-{dist.get_world_size()}"


def _around_destroy(original: Any) -> Any:
    def destroy_process_group(group: Any = None) -> Any:
        writer = recorder.current()
        if writer is not None and group_key(group) == "world" and dist.is_initialized():
            # Before the call: under NCCL it may wait for the other ranks.
            writer.write(Left(**writer.next(), site=user_lines.here()))
        with recorder.silence():
            return original(group)

    return destroy_process_group


def _around_new_group(original: Any) -> Any:
    def new_group(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is None:
            return original(*args, **kwargs)
        with recorder.silence():
            group = original(*args, **kwargs)
        ranks = kwargs.get("ranks", args[0] if args else None)
        ranks = list(range(dist.get_world_size())) if ranks is None else sorted(int(r) for r in ranks)
        name = ",".join(map(str, ranks))
        _same[name] += 1
        if group is not getattr(dist.GroupMember, "NON_GROUP_MEMBER", None):
            _keys[group] = f"{name}#{_same[name]}"
        return group

    return new_group
