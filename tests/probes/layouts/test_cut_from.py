"""What shards were cut from, as long as nothing was written to them since."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddpcheck.evidence import UNSEEN
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.layouts import cut_from


class Shard(torch.nn.Module):
    """A module whose sharding puts the first row of its weight in the place of that."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0).view(2, 4))

    def shard(self) -> torch.Tensor:
        self.weight = torch.nn.Parameter(self.weight[:1].detach().clone())
        return self.weight


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, bytes]:
    """A shard, and the digest of what it was cut from."""
    return cut_anew(monkeypatch)


def cut_anew(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, bytes]:
    monkeypatch.setattr(cut_from, "_cut", {})
    module = Shard()
    whole = fast_digests.digests([module.weight])
    # Where a tensor lies is what tells that it was sharded; these are no DTensors.
    monkeypatch.setattr(cut_from, "_placements", lambda one: str(len(one)))
    cutting = cut_from.Cutting(module, (0, 1))
    shard = module.shard()
    cutting.is_over()
    return shard, whole


def test_it_is_what_the_rank_held_before(cut: tuple[torch.Tensor, bytes]) -> None:
    shard, whole = cut
    known = cut_from.of(shard)
    assert known is not None
    assert (known.whole, known.ranks) == (whole, (0, 1))


def copied(shard: torch.Tensor) -> None:
    with torch.no_grad():
        shard.copy_(shard.detach().clone())


def by_data(shard: torch.Tensor) -> None:
    shard.data.fill_(3.0)


@pytest.mark.parametrize("write", [copied, by_data])
def test_what_was_written_to_was_cut_from_nothing(cut: tuple[torch.Tensor, bytes], write: Any) -> None:
    """Also with the numbers that were there before: those of the rank that all others got theirs from."""
    shard, _ = cut
    write(shard)
    assert cut_from.of(shard) is None


def test_what_lies_as_it_did_was_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module around one that is sharded already has its shards, too."""
    monkeypatch.setattr(cut_from, "_cut", {})
    module = Shard()
    cutting = cut_from.Cutting(module, (0, 1))
    cutting.is_over()
    assert cut_from.of(module.weight) is None


def test_on_a_device_it_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known that there was something, and, by its version, that it was written to since."""
    monkeypatch.setattr(readable_memory, "is_on_cpu", lambda tensor: False)
    shard, _ = cut_anew(monkeypatch)
    known = cut_from.of(shard)
    assert known is not None
    assert known.whole == UNSEEN
    copied(shard)
    assert cut_from.of(shard) is None
