"""Ranks that are stages of a pipeline by what they send each other."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts import norms, stages
from ddpcheck.relations.norm import scaling
from tests.facts.clips import clipped, of_all, slices
from tests.judging.sharded_models import mesh, stepped
from tests.judging.written import call, world


def sent_by(rank, others, number=3, continued=True, op="send"):
    """Calls to other ranks, as many as there are steps, and where its backwards go on from."""
    weights = {"backward": 1, "site": 20, "continued": continued}
    calls = [call(turn, 8, op, peer=other) for other in others for turn in range(number)]
    return [*calls, (ev.LossWeights, weights)]


def three(**last):
    """Three ranks in a row, of which the last one has the loss."""
    each = [sent_by(0, [1]), sent_by(1, [0, 2]), sent_by(2, [1], **{"continued": False, **last})]
    return world(*([*records, *(stepped(9, number, ["g"]) for number in range(3))] for records in each))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({}, [(0, 1), (1, 2)]),
        ({"op": "irecv"}, [(0, 1), (1, 2)]),
        ({"op": "broadcast"}, [(0, 1)]),
        ({"number": 2}, [(0, 1)]),  # now and then
    ],
)
def test_ranks_that_send_each_other_something_for_each_step(last, expected):
    assert [(one.rank, other.rank) for one, other in stages.pairs(three(**last))] == expected


def test_ranks_that_all_have_a_loss_are_no_stages():
    """As models that send each other what they have learnt."""
    each = [sent_by(0, [1], continued=False), sent_by(1, [0], continued=False)]
    assert stages.pairs(world(*([*records, stepped(9, 0, ["g"])] for records in each))) == []


def test_no_step_no_stages():
    assert stages.pairs(world(sent_by(0, [1]), sent_by(1, [0]))) == []


def test_stages_that_clip():
    """Nothing declares that they are one model: what is wrong is no error."""
    squares = [[[4.0], [16.0]], [[9.0], [1.0]], [[25.0], [36.0]]]

    def read(by):
        pairs = {"before": lambda rank: sent_by(rank, [1 - rank], continued=not rank)}
        (team,) = norms.of(clipped([None], by, squares=squares, **pairs))
        assert (team.kind, team.ranks) == ("sent", (0, 1))
        return scaling(team)

    assert [one.number for one in read(of_all).compared] == [0, 1, 2]
    (found,) = read(lambda step: [max(step[0][0], step[1][0]) ** 0.5] * 2).deviations
    assert (found.candidate, found.is_declared) == ("largest", False)


def test_a_pipeline_of_shards():
    """What is declared says why they belong together, and the others are of it, too."""
    squares = [[[4.0], [16.0], [1.0]], [[9.0], [1.0], [4.0]]]
    peers = {0: [], 1: [2], 2: [1]}

    def before(rank):
        meshes = [mesh([2])] if rank < 2 else []
        return [*meshes, *sent_by(rank, peers[rank], continued=rank != 2)]

    where = [lambda rank: slices(rank) if rank < 2 else None]
    (team,) = norms.of(clipped(where, of_all, squares=squares, before=before))
    assert (team.kind, team.ranks) == ("DTensor", (0, 1, 2))
