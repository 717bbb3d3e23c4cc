"""The store over which ranks find each other: a FileStore that is looked at often."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ddpcheck.ranks import rendezvous
from ddpcheck.ranks.rendezvous import PromptFileStore


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


def through_torch(store):
    """The same store as torch's C++ code meets it: every call goes down and comes back up."""
    return dist.PrefixStore("group", store)


@pytest.mark.parametrize("way", [lambda store: store, through_torch], ids=["python", "torch"])
def test_what_one_rank_sets_another_gets(path, way):
    """Every operation that a group needs is answered over the file, for Python and for torch itself."""
    one, other = way(PromptFileStore(path, 2)), way(PromptFileStore(path, 2))
    one.set("key", "value")
    assert other.get("key") == b"value"
    assert [one.add("count", 2), other.add("count", 3)] == [2, 5]
    assert other.check(["key", "count"])
    assert not other.check(["key", "nothing"])
    assert other.compare_set("key", "value", "new") == b"new"
    assert one.get("key") == b"new"
    other.wait(["key"], timedelta(seconds=5))
    before = one.num_keys()
    other.delete_key("count")
    assert one.num_keys() == before - 1
    assert not one.check(["count"])


def test_a_key_of_any_bytes_arrives_whole(path):
    """Addresses are no text."""
    one, other = PromptFileStore(path, 2), PromptFileStore(path, 2)
    one.set("address", bytes(range(256)))
    assert other.get("address") == bytes(range(256))


def test_get_waits_for_the_key(path, monkeypatch):
    """A rank that looks too early looks again, and finds the key when it comes."""
    found = []
    looked = threading.Semaphore(0)
    monkeypatch.setattr(rendezvous, "sleep", lambda seconds: (looked.release(), time.sleep(seconds)))
    PromptFileStore(path, 2).set("another", b"")
    reader = threading.Thread(target=lambda: found.append(PromptFileStore(path, 2).get("late")))
    reader.start()
    for _ in range(3):
        assert looked.acquire(timeout=10)
    assert found == []
    PromptFileStore(path, 2).set("late", b"here")
    reader.join(10)
    assert found == [b"here"]


@pytest.mark.parametrize("wait", ["wait", "get"])
def test_a_key_that_nobody_sets_ends_in_torchs_error(path, wait):
    """The wait has an end, told with torch's own exception and the key's name."""
    store = PromptFileStore(path, 2)
    store.set("another", b"1")
    store.set_timeout(timedelta(seconds=0.05))
    with pytest.raises(dist.DistStoreError, match="missing"):
        store.get("missing") if wait == "get" else store.wait(["missing"])
    with pytest.raises(dist.DistStoreError, match="missing"):
        store.wait(["missing"], timedelta(seconds=0.01))


@pytest.mark.ddp(world_size=3)
def test_sub_groups_find_each_other_over_it(ddp):
    """What a test does with groups of its own works as over any store."""
    pair = dist.new_group([0, 2])
    seen = torch.tensor([ddp.rank + 1])
    dist.all_reduce(seen)
    assert seen.item() == 6
    if ddp.rank != 1:
        alone = torch.tensor([ddp.rank])
        dist.all_reduce(alone, group=pair)
        assert alone.item() == 2
    dist.monitored_barrier()
    dist.destroy_process_group(pair)
    dist.barrier()
