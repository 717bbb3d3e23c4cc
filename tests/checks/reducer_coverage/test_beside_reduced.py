"""Parameters that one optimizer steps on each rank's own gradients, beside those that all ranks agree on."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.judging.loaded import loader, through
from tests.judging.own_reductions import carried, digests, stepped
from tests.judging.written import ended, exchanged, world

REDUCED = [carried(0)]


def optimizer(number, name, begun, line, model=0, **more):
    parameter = {"name": name, "kind": "float32[4]", "wrapper": None, "reduced": False, "model": model, "path": name}
    fields = {"optimizer": number, "kind": "SGD", "site": line, "sharded": False, "values": digests(begun)}
    return ev.Optimizer, {**fields, "parameters": [ev.Parameter(**{**parameter, **more})]}


def findings(begun="vv", gradients="hi", after="xy", dealt=False, reduced=True, others=(), model=0, joint=(), **more):
    """Two ranks and two optimizers of one model; ``b`` begins, gets gradients and comes out on each of them as said."""
    ranks = []
    for rank in range(2):
        steps = []
        for turn in range(2):
            steps += [
                exchanged(turn, *(REDUCED if reduced else ())),
                stepped("g", "p", turn),
                exchanged(turn, *others, of=1),
                stepped(gradients[rank], after[rank], turn, optimizer=1),
            ]
        read = [loader(rank=rank), *through(range(8 * rank, 8 * rank + 8))] if dealt else []
        given = {"optimizer": 1, "number": 0, "how": "backward", "site": 8, "squares": ev.packed([1.0]), "factor": 1.0}
        steps.append((ev.Norm, {**given, "joint": list(joint)}))
        both = [optimizer(0, "a", "v", 4), optimizer(1, "b", begun[rank], 5, model, **more)]
        ranks.append([*both, *read, *steps, ended()])
    return [one for one in judge(world(*ranks)).findings if one.subject[-1] == "b" and "began as copies" in one.found]


def test_an_optimizer_that_nothing_is_reduced_for():
    (found,) = findings()
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 9)
    assert found.proof[0][1].line == 5


def test_one_module_of_which_a_part_is_reduced():
    """It is no head of a rank's own, where ranks train on shards of one dataset."""
    (found,) = findings(dealt=True)
    assert found.severity == "error"


def test_a_module_of_its_own():
    """Such as a head, which each rank may be meant to train for itself."""
    (found,) = findings(dealt=True, path="head.b")
    assert found.severity == "warning"


@pytest.mark.parametrize("more", [
    {"begun": "vw"},  # each rank's own from the beginning
    {"filled": True},  # equal without being copies
    {"gradients": "hh"},
    {"after": "xx"},  # brought together within the step
    {"reduced": False},  # nothing of the model is
    {"others": REDUCED},
    {"model": 1},  # of another model
    {"shared": True},  # in the memory of all
    {"joint": ["world"]},  # parts of one model, to which activations are sent
])  # fmt: skip
def test_what_may_be_meant(more):
    assert findings(**more) == []
