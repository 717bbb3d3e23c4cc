"""Trainable parameters that no optimizer has, in models that are stepped otherwise."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.judging.sharded_models import digest, optimizer, stepped
from tests.judging.written import world

HELD = dict.fromkeys(("body.weight", "body.bias", "norm.weight"))


def left(*values, names=("head.weight", "head.bias"), among=5, held=HELD, later=()):
    """Two ranks, and at each step what these parameters were."""
    looks = [
        (ev.Unstepped, {"optimizer": 0, "number": number, "model": 0, "names": list(names), "among": among,
                        "values": b"".join(digest(value) for _ in names)})
        for number, value in enumerate(values)
    ]  # fmt: skip
    return world(*[[*looks, optimizer(5, held), stepped(7, 0, list(held)), *later]] * 2)


def test_a_head_in_no_group():
    """It has gradients at each step, and stays as it is."""
    (found,) = judge(left("a", "a", "a")).findings
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 5)
    assert "2 parameters that are in none" in found.found
    assert "head.weight" in found.found


@pytest.mark.parametrize("given", [
    {"values": ("a", "b", "c")},  # stepped by hand, or sent by an owner
    {"values": ("a", "a")},  # too early to say
    {"values": ("a", "a", "a"), "among": 4},  # the rest is meant to be trained: a head on a frozen body
    {"values": ("a", "a", "a"), "names": ("body.bias",)},  # of another optimizer, later on
])  # fmt: skip
def test_what_is_stepped_or_meant(given):
    values = given.pop("values")
    assert judge(left(*values, **given)).findings == ()


def test_what_was_not_looked_at():
    ranks = left("a", "a", "a")
    for rank in ranks:
        for one in rank.of(ev.Unstepped):
            assert len(one.values) == 2 * ev.WIDTH
    unseen = [
        (ev.Unstepped, {"optimizer": 0, "number": number, "model": 0, "names": ["head.weight"], "among": 5,
                        "values": ev.UNSEEN})
        for number in range(3)
    ]  # fmt: skip
    assert judge(world([*unseen, optimizer(5, HELD), stepped(7, 0, list(HELD))])).findings == ()


def dealt_out(others, held, made):
    """Rank 0 steps a part of the model, and rank 1 these: what rank 0 holds of two at each step, what rank 1 makes."""
    net = (ev.Model, {"model": 0, "kind": "Net", "site": 2, "held": []})
    looks = [
        (ev.Unstepped, {"optimizer": 0, "number": number, "model": 0, "names": ["c.weight", "d.weight"], "among": 4,
                        "values": b"".join(map(digest, each))})
        for number, each in enumerate(held)
    ]  # fmt: skip
    mine = dict.fromkeys(("a.weight", "b.weight"))
    ranks = [[net, *looks, optimizer(5, mine), stepped(7, 0, list(mine))]]
    steps = [stepped(7, number, list(others), each) for number, each in enumerate(made)]
    ranks.append([net, optimizer(5, dict.fromkeys(others)), *steps])
    return judge(world(*ranks)).findings


def test_what_is_left_over_when_parameters_are_dealt_out():
    """The last one has no owner, where their number is no multiple of the ranks."""
    (found,) = dealt_out(["c.weight"], held=("px", "qx", "rx"), made="qrs")
    assert (found.severity, found.subject) == ("warning", "d.weight")
    assert "dealt out" in found.cause


@pytest.mark.parametrize("given", [
    {"held": ("px", "qy", "rz"), "made": ("qy", "rz", "su")},
    {"held": ("px", "px", "px"), "made": ("qy", "rz", "su")},  # each rank's own parts
    {"held": ("px", "qx", "rx"), "made": ("qk", "rl", "sm")},
])  # fmt: skip
def test_what_its_owners_send_or_keep(given):
    assert dealt_out(["c.weight", "d.weight"], **given) == ()


def stage(*records, module=0):
    given = {"how": "PipelineStage", "site": 3, "stage": 2, "stages": 4, "pipeline": (0, 1), "module": module}
    return [(ev.Parallelised, given), *records]


@pytest.mark.parametrize(("among", "module", "expected"), [(2, 0, 1), (3, 0, 0), (2, 7, 0)])
def test_a_whole_stage_of_a_pipeline(among, module, expected):
    """The ranks have two each; a part of a stage may be meant, and so may another model."""
    found = judge(left("a", "a", "a", among=among, later=stage(module=module))).findings
    assert len(found) == expected
    if expected:
        assert (found[0].severity, found[0].ranks) == ("warning", (0, 1))
        assert "a stage whose 2 parameters get gradients" in found[0].found
