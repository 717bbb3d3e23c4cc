"""Of what ranks have kept, what bears on a line: what came after the last agreement, and nothing that was made good."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.line_evidence import bearing_on
from tests.judging.training_steps import optimizer, stepped
from tests.judging.written import transfers, world, wrapped

LINE = (ev.AtLine, {})
MOVED = (ev.Moved, {"wrapper": 0, "site": 4, "function": "to"})


def ranks(*each):
    """Two ranks or more, whose gradients and parameters have these letters, step by step; the last is the line's."""
    made = []
    for steps in each:
        written = [
            stepped(9, gradients, parameters, number=number) for number, (gradients, parameters) in enumerate(steps)
        ]
        made.append([wrapped(3), optimizer(0, 4), MOVED, *written[:-1], LINE, written[-1], transfers()])
    return world(*made)


def left(known):
    """The steps that are left, rank by rank; and how many conversions are."""
    return [[s.number for s in rank.of(ev.Step)] for rank in known], len(known.ranks[0].of(ev.Moved))


RIGHT, APART = [("gh", "cd"), ("gh", "ef")], [("gh", "cd"), ("ij", "ex")]


def test_of_gradients_the_line_alone_counts():
    """Whatever an earlier step has shown, it was another step; a conversion before a reduced one is none."""
    assert left(bearing_on(ranks([*RIGHT, ("kl", "op")], [*APART, ("ko", "op")]), gradients=True)) == ([[2], [2]], 0)
    assert left(bearing_on(ranks([("gh", "cd")], [("ij", "cd")]), gradients=True)) == ([[0], [0]], 1)


def test_of_parameters_what_came_after_the_last_agreement():
    """A difference that was made good before explains nothing; one that lasts is there from its first step on."""
    lasting = ranks([*RIGHT, ("kl", "op")], [*APART, ("kl", "ox")])
    assert left(bearing_on(lasting, gradients=False)) == ([[1, 2], [1, 2]], 0)
    made_good = ranks([("gh", "cx"), ("gh", "ef"), ("kl", "op")], [("ij", "cd"), ("gh", "ef"), ("kl", "ox")])
    known = bearing_on(made_good, gradients=False)
    assert left(known) == ([[2], [2]], 0)
    assert [rank.of(ev.Optimizer)[0].values for rank in known] == [b"", b""]
    never = ranks([("gh", "cx"), ("gh", "ex")], [("ij", "cd"), ("ij", "ef")])
    assert left(bearing_on(never, gradients=False)) == ([[0, 1], [0, 1]], 1)


def test_ranks_that_have_not_made_equally_many_steps_are_not_compared():
    """The line of one would stand beside a step of the other."""
    assert bearing_on(ranks(RIGHT, [*RIGHT, ("kl", "op")]), gradients=False) is None
