"""What ranks evaluate that no wrapper holds: copies, or stages of a pipeline."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.training_steps import digests
from tests.judging.written import call, world


def evaluated(letters):
    held = ev.Tensors(names=["0.weight", "0.bias"], digests=digests(letters))
    fields = {"kind": "Sequential", "number": 0, "parameters": held, "buffers": ev.Tensors(), "site": 20, "module": 3}
    return ev.Evaluated, fields


def stage(number):
    given = {"how": "PipelineStage", "site": 3, "stage": number, "stages": 2, "pipeline": (0, 1), "module": 3}
    return ev.Parallelised, given


def test_copies_that_differ():
    judged = judge(world([evaluated("ab")], [evaluated("cd")]))
    (found,) = judged.findings
    assert judged.checked == 1
    assert (found.severity, found.where.line) == ("warning", 20)


@pytest.mark.parametrize("ranks", [
    [[stage(rank), evaluated(own)] for rank, own in enumerate(("ab", "cd"))],  # both name their layers from zero
    [[call(1, 5, op="send", peer=1), evaluated("ab")], [call(1, 6, op="recv", peer=0), evaluated("cd")]],
])  # fmt: skip
def test_stages_are_no_copies(ranks):
    judged = judge(world(*ranks))
    assert (judged.checked, judged.findings) == (0, ())


def test_stages_of_two_pipelines_are_compared_with_their_own():
    """Replicas of one stage that differ; the other one is alike."""
    each = [(0, "ab"), (1, "cd"), (0, "ax"), (1, "cd")]
    judged = judge(world(*[[stage(number), evaluated(own)] for number, own in each]))
    (found,) = judged.findings
    assert judged.checked == 2
    assert found.ranks == (2,)


def test_evaluations_are_compared_between_the_same_collectives_alone():
    """Ranks that make unequally many steps: after as many, they are in other rounds."""

    def ranks(number):
        rounds = [evaluated("ab"), call(0, 5), evaluated("cd")], [call(0, 5), evaluated("cd"), call(number, 5)]
        return [list(one) for one in rounds]

    judged = judge(world(*ranks(1)))
    assert (judged.checked, judged.findings) == (1, ())
    (found,) = judge(world([call(0, 5), evaluated("ab")], [call(0, 5), evaluated("cd")])).findings
    assert found.rule == "different-evaluated-copy"
