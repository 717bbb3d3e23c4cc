"""Parameters whose owner hands them to all ranks: seen by what a gather was given, and who has it afterwards."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from ddpcheck.judging import step_alignment
from ddpcheck.judging.handed_out import handed_out
from tests.judging.own_reductions import digests, optimizer, stepped
from tests.judging.written import world


def filled(pieces, number=0, op="gather", group="world"):
    return ev.Filled, {
        "optimizer": 0, "number": number, "op": op, "group": group, "pieces": digests(pieces), "site": 9,
    }  # fmt: skip


def rank(*steps, values="vw", names="ab"):
    """For each step: what the rank gives into a gather, its gradients on entry, and its parameters on exit."""
    records = [optimizer(names=names, values=values, torchs=False)]
    for number, (given, gradients, parameters) in enumerate(steps):
        records += [filled(given, number)] if given else []
        records.append(stepped(gradients, parameters, number=number))
    return records


def places(*ranks):
    over = world(*ranks)
    (one,) = step_alignment.optimizers(over)
    return handed_out(over, one)


def test_owners_hand_out_what_they_have_stepped():
    """Each gives its own; both have both."""
    assert places(rank(("p", "gh", "pq")), rank(("q", "ij", "pq"))) == {0, 1}


def test_a_rank_that_takes_nothing_over():
    """The other one shows that the values are meant for all."""
    ranks = [rank(("p", "gh", "pq")), rank(("q", "ij", "vw"))]
    assert places(*ranks) == {0, 1}
    (found,) = judge(world(*ranks)).findings
    assert (found.severity, found.ranks, found.step) == ("error", (1,), 0)
    assert found.cause == "a rank does not take over what the owner of a parameter hands to all"


@pytest.mark.parametrize(("first", "second"), [
    ((("p", "gh", "pq"),), (("r", "ij", "rs"),)),  # each has its own, and gathers it for a log
    ((("pq", "gh", "pq"),), (("pq", "ij", "pq"),)),  # all give all of it, and nobody takes any
    ((("v", "gh", "vw"),), (("w", "ij", "vw"),)),  # nothing has changed
    ((("", "gh", "pq"),), (("", "ij", "pq"),)),  # equal values, and no gather
    # Handed out in the first step, and in the second one each rank has its own.
    ((("p", "gh", "pq"), ("r", "gh", "rs")), (("q", "ij", "pq"), ("u", "ij", "tu"))),
])  # fmt: skip
def test_what_is_no_ground(first, second):
    """Nothing is claimed where no rank has what another alone has given, at every step."""
    assert places(rank(*first), rank(*second)) == set()
    assert judge(world(rank(*first), rank(*second))).findings == ()


def test_a_population_looks_at_each_other():
    """All give all of theirs, and one takes another's: the rest go on with what is their own."""
    members = [rank((its, "gh", its)) for its in ("pq", "rs", "tu")]
    last = rank(("xy", "gh", "pq"))
    assert places(*members, last) == set()
    assert judge(world(*members, last)).findings == ()


def test_gathers_of_other_ranks_say_nothing():
    """A group of one rank brings nothing to another."""
    alone = [[(kind, {**fields, "group": "0#1"}) if kind is ev.Filled else (kind, fields) for kind, fields in one]
             for one in (rank(("p", "gh", "pq")), rank(("q", "ij", "pq")))]  # fmt: skip
    assert places(*alone) == set()


def test_gradients_that_are_reduced_to_owners():
    """A parameter whose gradient goes the way of the others' is one of them, also where its value goes no way."""
    ranks = [
        [*rank(("p", "ghk", "pqr"), names="abc", values="vwx"), filled("ghk", op="scatter")],
        [*rank(("q", "ijl", "pqs"), names="abc", values="vwx"), filled("ijl", op="scatter")],
    ]
    assert places(*ranks) == {0, 1, 2}
    (found,) = judge(world(*ranks)).findings
    assert "1 of 3 parameters" in found.found


# --- left over


def left(parameters, values="vwx"):
    return [rank((given, f"gh{end}", f"pq{end}"), names="abc", values=values)
            for given, end in zip("pq", parameters, strict=True)]  # fmt: skip


def test_a_last_round_that_is_left_out():
    """Two of three are handed out between two ranks; each has stepped the third for itself."""
    (found,) = judge(world(*left("rs"))).findings
    assert (found.severity, found.ranks) == ("warning", (0, 1))
    assert "does not divide by the number of ranks" in found.cause
    assert judge(world(*left("rr"))).findings == ()


def test_what_began_apart_is_no_remainder():
    """Experts of each rank have the shape of what is shared, too."""
    first, second = left("rs")
    second[0] = optimizer(names="abc", values="vwy", torchs=False)
    assert judge(world(first, second)).findings == ()
