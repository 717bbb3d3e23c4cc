"""What each element of a loss counts, compared between the ranks that reduce their gradients together."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.run import judge
from tests.judging.written import step, world, wrapped

KIND = "float32[2]"


def weighed(*batches, line=20, **more):
    """A backward() for each pair of elements and their weight, of one term."""
    terms = [ev.Term(by="NllLoss", elements=elements, weight=weight, kind="mean") for elements, weight in batches]
    backwards = [ev.Weighed(site=line, terms=[term]) for term in terms]
    return ev.StepWeights, {"optimizer": 0, "number": 0, "backwards": backwards, **more}


def optimizer():
    one = ev.Parameter(name="w", kind=KIND, wrapper=0, reduced=True)
    fields = {"optimizer": 0, "kind": "SGD", "site": 9, "parameters": [one], "sharded": False, "values": b"a" * 8}
    return ev.Optimizer, fields


def wrapper(*records):
    return [wrapped(9), optimizer(), step(30), *records]


def test_a_mean_over_each_ranks_own():
    """It is a warning, at the line of the backward()."""
    judged = judge(world(wrapper(weighed((4, 1 / 4))), wrapper(weighed((6, 1 / 6)))))
    (found,) = judged.findings
    assert (judged.checked, found.severity, found.ranks, found.where.line) == (1, "warning", (0, 1), 20)


def test_one_weight_for_all():
    judged = judge(world(wrapper(weighed((4, 1 / 10))), wrapper(weighed((6, 1 / 10)))))
    assert (judged.checked, judged.findings) == (1, ())


def test_what_was_not_weighed_is_not_held():
    judged = judge(world(wrapper(), wrapper()))
    assert (judged.checked, judged.skipped_because) == (
        0,
        "no step that all ranks made came from a backward() of theirs",
    )
