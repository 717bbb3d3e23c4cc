"""A rank without others: nothing that is only there to be compared is looked at."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.data.loader_pass import is_told
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.recording import lone_rank
from ddpcheck.probes.recording.pace import Pace, is_due


@pytest.mark.parametrize(("world_size", "looks"), [(1, False), (2, True)])
def test_where_looks_begin(monkeypatch, world_size, looks):
    """At steps, passes, forwards and backwards; and of the tensors that are read all the same, nothing is."""
    monkeypatch.setattr(lone_rank, "_lone", False)
    lone_rank.joined(world_size)
    begun = is_due(0), Pace().is_due(0), Pace(careful=True).is_due(0), is_told(0, 3)
    assert begun == (looks,) * 4
    digest = fast_digests.digests([torch.ones(2), None])
    assert (digest[: len(fast_digests.UNSEEN)] != fast_digests.UNSEEN) == looks
    assert digest.endswith(fast_digests.ABSENT)
