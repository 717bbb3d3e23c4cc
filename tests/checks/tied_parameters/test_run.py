"""What was one parameter: still one, two that stay equal, or two that part."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.tied_parameters.run import judge
from tests.judging.sharded_models import held, layout, mesh, model, optimizer, stepped
from tests.judging.written import world

WORDS = "Embedding.weight and Linear.weight"


def tie(first="embed", second="head", same=False):
    return ev.Tie(first=first, second=second, same=same, words=WORDS)


def broken(after, where=None, other=None):
    """A tie that is two tensors, and what both are after each step, on each of two ranks."""
    ranks = []
    for _ in range(2):
        tensors = [held("embed", layout=where), held("head", "embed", layout=other or where)]
        ranks.append(
            [
                mesh((2,)),
                model(9, *tensors, ties=[tie()]),
                optimizer(10, {"embed": where, "head": other or where}),
                *[stepped(12, number, list(values)) for number, values in enumerate(after)],
            ]
        )
    return world(*ranks)


def test_a_tie_that_holds():
    """One tensor under two names."""
    judged = judge(world(*[[model(9, held("embed"), ties=[tie(same=True)])]] * 2))
    assert (judged.checked, judged.findings) == (2, ())


def test_a_model_without_ties():
    """Nothing to check, and that is said."""
    judged = judge(world(*[[model(9, held("embed"))]] * 2))
    assert (judged.checked, judged.skipped_because) == (0, "ddpcheck saw no parameter with two names")


def test_copies_that_part():
    """At the first step after which they differ, once for all ranks."""
    (found,) = judge(broken(["aa", "ab", "ac"])).findings
    assert (found.severity, found.subject, found.step) == ("error", "head", 1)
    assert found.where is not None
    assert found.where.line == 12


def test_copies_that_stay_equal():
    """Such as those whose gradients a hook adds up."""
    judged = judge(broken(["aa", "bb"]))
    assert (judged.checked, judged.findings) == (4, ())


def test_other_parts_of_two_tensors_are_not_compared():
    """Shards of different dimensions differ rightly."""
    one, other = layout(0, (2,), ("S0",)), layout(0, (2,), ("S1",))
    judged = judge(broken(["ab"], one, other))
    assert (judged.checked, judged.findings) == (0, ())


def stages(first, last):
    """A pipeline whose first stage has the one name, and whose last has the other."""
    ranks = [
        [
            model(9, held("embed"), ties=[tie(second="")]),
            optimizer(10, {"embed": None}),
            *[stepped(12, number, [value]) for number, value in enumerate(first)],
        ],
        [
            model(9, held("head", "embed"), ties=[tie(first="")]),
            optimizer(10, {"head": None}),
            *[stepped(12, number, [value]) for number, value in enumerate(last)],
        ],
    ]
    return world(*ranks)


def test_copies_on_two_stages_that_part():
    """Nobody adds up their gradients."""
    (found,) = judge(stages("ab", "ac")).findings
    assert (found.ranks, found.step) == ((0, 1), 1)
    assert "embed (rank 0) and head (rank 1)" in found.found


def test_copies_on_two_stages_that_stay_equal():
    """Somebody does."""
    judged = judge(stages("ab", "ab"))
    assert (judged.checked, judged.findings) == (2, ())
