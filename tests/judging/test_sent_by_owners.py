"""Parameters that an owner steps, and that others have when their next steps begin."""

from __future__ import annotations

import pytest

from ddpcheck.facts.parallelism_seen import understood
from ddpcheck.judging.sent_by_owners import sent
from tests.judging.owners import both, optimizer
from tests.judging.written import world


def test_each_is_sent_by_its_owner():
    judged = world(*both())
    assert [(one.owner.rank, one.path, len(one.taken)) for one in sent(judged)] == [(0, "a", 3), (1, "b", 3)]
    assert "2 parameters dealt out over 2 ranks, each stepped by one rank and sent to the others" in understood(judged)


@pytest.mark.parametrize("more", [
    {"on_first": "vvvv", "on_second": "vvvv"},  # never
    {"on_first": "vxyz", "on_second": "vxyz"},  # something else
    {"first": "cccc", "second": "gggg", "on_first": "vggg", "on_second": "vccc"},  # nothing new comes
], ids=["never", "something else", "nothing new"])  # fmt: skip
def test_what_is_sent_by_nobody(more):
    assert sent(world(*both(**more))) == []


def test_a_parameter_of_several_optimizers():
    """Who owns it is not known."""
    ranks = both()
    ranks[1].insert(1, optimizer("a", 1))
    assert [one.path for one in sent(world(*ranks))] == ["b"]
