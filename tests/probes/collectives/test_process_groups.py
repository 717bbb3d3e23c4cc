"""The word by which the ranks of a group are known to be one: the program does not wait for it."""

from __future__ import annotations

import time

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import Left
from ddpcheck.probes.collectives import process_groups
from ddpcheck.probes.recording import recorder


@pytest.fixture
def token(monkeypatch):
    """What a rank takes for the word, at a store of a kind of its own."""

    def of(store, rank, backend="gloo"):
        monkeypatch.setattr(c10d, "_get_default_store", lambda: store)
        for name, value in (("get_rank", rank), ("get_world_size", 8), ("get_backend", backend)):
            monkeypatch.setattr(dist, name, lambda value=value: value)
        return process_groups._token()

    return of


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"), 2)
    if request.param == "tcp":
        return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    plain = dist.HashStore()
    return dist.PrefixStore("default_pg", plain) if request.param == "prefix" else plain


def test_whoever_comes_first_says_it(token, store):
    """The same word for all, and no waiting: rank 0 may not be watched, or may not be there."""
    began = time.monotonic()
    found = token(store, 3), token(store, 0), token(store, 1)
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert time.monotonic() - began < 2


def test_a_world_that_is_not_there(token):
    """Each process of a simulated world is by itself: nothing is asked of the store, nor left in it."""
    store = dist.HashStore()
    assert token(store, 3, "fake") != token(store, 0, "fake")
    assert store.num_keys() == 0


def test_a_store_that_cannot_be_asked(token):
    """The group is known by its size."""
    assert token(object(), 3) == "unknown-8"


@pytest.mark.parametrize(("initialized", "told"), [(True, [Left]), (False, [])])
def test_a_rank_leaves_its_group_when_it_begins_to_destroy_it(monkeypatch, initialized, told):
    """NCCL may keep it in there until the others come: they wait for a rank that makes no further call."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    monkeypatch.setattr(dist, "is_initialized", lambda: initialized)
    within = []
    process_groups._around_destroy(lambda group: within.extend(type(one) for one in writer.kept))(None)
    assert [kind for kind in within if kind is Left] == told
