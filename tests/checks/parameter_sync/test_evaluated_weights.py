"""What all ranks evaluate of a wrapped model: a finding where a part of them has left the others behind."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.evaluated_weights import judge
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import call, loaded, step, world, wrapped


def evaluated(letters, line=20, number=1, reduced=(0, 1), **more):
    held = ev.Tensors(names=["w0", "w1"], digests=digests(letters))
    fields = {"kind": "Net", "number": number, "parameters": held, "buffers": ev.Tensors(), "site": line}
    return ev.Evaluated, {**fields, "module": 3, "wrapper": 0, "reduced": [*reduced], **more}


def trained(*records, parameters="cd", **more):
    names = ev.Tensors(names=["w0", "w1"], digests=digests("ab"))
    build, fields = optimizer(0, 4)
    return [wrapped(3, parameters=names), (build, {**fields, **more}), stepped(9, "gh", parameters), *records]


LOADED = loaded("module", 15, wrapped=True, wrapper=0)
MEAN = call(1, 22, "all_reduce")


def judged(*ranks):
    """How often it looked, and what it has found."""
    return judge(world(*ranks))


def told(*ranks):
    _, findings = judged(*ranks)
    return [(f.severity, f.ranks, f.where.line, f.cause.partition(" loaded")[0]) for f in findings]


def test_the_weights_of_the_last_step():
    """Equal, and counted."""
    rank = trained(evaluated("cd"), MEAN)
    assert judged(rank, rank) == (1, [])


def test_one_rank_alone_goes_back_to_its_best_weights():
    """The mean over the ranks is of two models; told once, at the load."""
    both = [evaluated("xy"), evaluated("xy", 21), MEAN]
    ranks = trained(LOADED, *both), trained(evaluated("cd"), evaluated("cd", 21), MEAN)
    assert told(*ranks) == [("error", (0,), 15, "only rank 0")]
    _, (finding,) = judged(*ranks)
    assert finding.found == "2 of 2 parameters to differ: w0, w1"
    assert [(rank, site.line) for rank, site in finding.proof] == [(0, 20), (1, 20)]


def test_what_becomes_of_the_results_decides():
    """Results that are kept apart may be meant to be of two models."""
    assert told(trained(LOADED, evaluated("xy")), trained(evaluated("cd")))[0][0] == "warning"


def test_one_rank_is_changed_without_a_load():
    """Averages that were put in the place of the weights on rank 0 alone: or else it tries something out."""
    found = told(trained(evaluated("xy"), MEAN), trained(evaluated("cd"), MEAN))
    cause = "it was changed on rank 0 alone after the last step (or the wrap), and DDP sends no rank's parameters to "
    assert found == [("warning", (0,), 20, f"{cause}the others")]


def test_a_script_that_only_evaluates():
    """What all ranks held is what the wrapper's constructor has sent them."""
    built = wrapped(3, parameters=ev.Tensors(names=["w0", "w1"], digests=digests("ab")))
    first = [built, LOADED, evaluated("xy", number=0), MEAN]
    assert told(first, [built, evaluated("ab", number=0), MEAN]) == [("error", (0,), 15, "only rank 0")]
    assert told(first, first) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Every rank has something of its own: a checkpoint, a perturbation.
        (trained(LOADED, evaluated("xy"), MEAN), trained(LOADED, evaluated("uv"), MEAN)),
        (trained(evaluated("xy"), MEAN), trained(evaluated("uv"), MEAN)),
        # Rank 0 evaluates alone, or at another line.
        (trained(LOADED, evaluated("xy"), MEAN), trained(MEAN)),
        (trained(LOADED, evaluated("xy"), MEAN), trained(evaluated("cd", 21), MEAN)),
        # What it has loaded came to the others.
        (trained(LOADED, call(1, 16, "broadcast"), evaluated("xy"), MEAN), trained(evaluated("xy"), MEAN)),
        # Parameters that no reducer has, and those that are averaged now and then.
        (trained(LOADED, evaluated("xy", reduced=()), MEAN), trained(evaluated("cd", reduced=()), MEAN)),
        (trained(LOADED, evaluated("xy"), MEAN, apart=True), trained(evaluated("cd"), MEAN, apart=True)),
        # The steps tell of it: of before, and of after.
        (trained(evaluated("cd"), MEAN), trained(evaluated("xy"), MEAN, parameters="xy")),
        (
            trained(LOADED, evaluated("xy"), MEAN, stepped(9, "ij", "ef", 1)),
            trained(evaluated("cd"), MEAN, stepped(9, "ij", "kl", 1)),
        ),
        # Nobody knows whether they go on apart.
        (
            trained(LOADED, evaluated("xy"), MEAN, step(9, number=1, place=1)),
            trained(evaluated("cd"), MEAN, step(9, number=1, place=1)),
        ),
        # Nor which of them was changed.
        (trained(evaluated("xy", reduced=(0,))), trained(step(9, number=1, place=1), evaluated("cd", reduced=(0,)))),
    ],
)
def test_ranks_that_may_differ(first, second):
    """Each for itself, on purpose or as far as anybody knows; or told elsewhere."""
    assert told(first, second) == []


def test_ranks_that_go_back_after_the_evaluation():
    """The training goes on from where it was: the evaluation was of two models all the same."""
    after = stepped(9, "ij", "ef", 1)
    assert told(trained(LOADED, evaluated("xy"), MEAN, LOADED, after), trained(evaluated("cd"), MEAN, after)) == [
        ("error", (0,), 15, "only rank 0")
    ]
