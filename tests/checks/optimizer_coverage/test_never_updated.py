"""Matrices that come out of every step as they went into it."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.judging.own_reductions import digests, stepped
from tests.judging.written import world

NAMES = ("moves", "stays")
GRADIENTS = ("gh", "ij", "kl")
"""Of ``moves`` and ``stays``, at each step."""


def findings(
    after=("bv", "cv", "dv"), gradients=GRADIENTS, rate=0.1, other=None, kind="float32[4, 2]", names=NAMES, **more
):
    """Two ranks that have an optimizer of the program's own; what its parameters are after each step, on rank 1 too."""
    parameters = [
        ev.Parameter(name=name, kind=kind, wrapper=None, reduced=False, model=0, path=name, filled=False)
        for name in names
    ]
    described = ev.Optimizer, {
        "optimizer": 0, "kind": "Shampoo", "site": 4, "parameters": parameters, "sharded": False,
        "values": digests("av"), "groups": [1, 1], "torchs": False, **more,
    }  # fmt: skip

    def of(values):
        each = zip(gradients, values, strict=True)
        return [described, *(stepped(g, p, n, rates=[0.1, rate]) for n, (g, p) in enumerate(each))]

    return judge(world(of(after), of(other or after))).findings


def test_an_update_that_is_overwritten():
    (found,) = findings()
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("warning", (0, 1), "stays", 9)
    assert "the same after each of 3 steps" in found.found


def test_a_block_whose_turn_has_not_come():
    """Nothing changes of a whole group; of one of which some change, an owner is missing."""
    after, gradients = ("bcvv", "devv", "fgvv"), ("ghij", "klmn", "opqr")
    names, values = ("moves", "too", "stays", "as it was"), digests("abvv")
    assert findings(after, gradients, names=names, values=values, groups=[2, 2]) == ()
    (found,) = findings(after, gradients, names=names, values=values, groups=[1, 3])
    assert "2 matrices" in found.found


@pytest.mark.parametrize("more", [
    {"after": ("bv", "cw", "dv")},
    {"after": ("av", "av", "av")},  # nothing changes: the steps are left out
    {"gradients": ("gh", "ih", "kh")},  # behind a factor of zero
    {"rate": 0.0},
    {"rate": 1e-8},  # lost in rounding, it may be
    {"kind": "bfloat16[4, 2]"},
    {"kind": "float32[4]"},
    {"torchs": True},
    {"after": ("bv", "cv"), "gradients": GRADIENTS[:2]},  # too early to say
    {"other": ("bw", "cx", "dy")},  # another rank changes it
])  # fmt: skip
def test_what_is_meant_or_changes(more):
    assert findings(**more) == ()
