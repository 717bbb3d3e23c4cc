"""Exchanges between steps after which the ranks hold the same parameters: seen at the step that follows."""

from __future__ import annotations

import pytest
from ddpcheck.judging.brought_together import brought_together

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from ddpcheck.facts import parallelism_seen
from ddpcheck.judging import step_alignment
from tests.judging.own_reductions import digests, optimizer, stepped
from tests.judging.written import call, transfers, world, wrapped


def exchanged_before(number, values, line=20, group="world"):
    return ev.AfterExchange, {
        "optimizer": 0, "number": number, "values": digests(values), "sites": [line], "groups": [group],
    }  # fmt: skip


def rank(*steps, **more):
    """For each step: the parameters on exit, and those on entry to the next one, if something was exchanged."""
    records = [optimizer()]
    for number, (after, then) in enumerate(steps):
        records.append(stepped("gh", after, number=number))
        records += [exchanged_before(number + 1, then, **more)] if then else []
    return records


def test_averages_are_compared_when_the_next_step_begins():
    """Until then each rank has parameters of its own."""
    over = world(rank(("pq", "vw"), ("vw", "")), rank(("rs", "vw"), ("xy", "")))
    (one,) = step_alignment.optimizers(over)
    assert brought_together(over, one) == {0, 1}
    judged = judge(over)
    assert (judged.checked, judged.findings) == (1, ())
    assert "2 parameters that each rank steps for itself, brought together" in parallelism_seen.paragraph(over)


def test_an_average_that_does_not_bring_them_together_any_more():
    """Counted from other weights than before: the line shows what it is meant to do."""
    first, second = (("pq", "vw"), ("rs", "tu")), (("ab", "vw"), ("cd", "ef"))
    (found,) = judge(world(rank(*first), rank(*second))).findings
    assert (found.severity, found.step, found.where.line) == ("warning", 2, 20)
    assert "2 of 2 parameters to differ when step 2 began" in found.found


def test_a_round_of_some_ranks():
    """As where clients are drawn for each round, and all of them for the first one."""
    members = [(("pq", "vw"), (own, its)) for own, its in (("rs", "tu"), ("ab", "tu"), ("cd", "ef"))]
    assert judge(world(*[rank(*one) for one in members])).findings == ()


@pytest.mark.parametrize(("first", "second", "more"), [
    # Fragments take turns, and others are mixed in.
    ((("pq", "vq"), ("vq", "vw")), (("ab", "vb"), ("vb", "xw")), {}),
    # It has never brought them together: gossip, elastic averages.
    ((("pq", "rs"), ("rs", "tu")), (("ab", "cd"), ("cd", "ef")), {}),
    # The same all along: nothing had to be done.
    ((("pq", "pq"), ("rs", "tu")), (("pq", "pq"), ("cd", "ef")), {}),
    # Of a group that not all ranks are in.
    ((("pq", "vw"), ("rs", "tu")), (("ab", "vw"), ("cd", "ef")), {"group": "0#1"}),
])  # fmt: skip
def test_what_says_nothing(first, second, more):
    """Only an exchange that has brought all of them together is known to be meant to."""
    assert judge(world(rank(*first, **more), rank(*second, **more))).findings == ()


def test_another_line_is_another_exchange():
    """What is gathered for a log brings nobody together."""
    ranks = [
        [*rank(("pq", "vw")), stepped("gh", "rs", number=1), exchanged_before(2, "tu", line=30)],
        [*rank(("ab", "vw")), stepped("gh", "cd", number=1), exchanged_before(2, "ef", line=30)],
    ]
    assert judge(world(*ranks)).findings == ()


# --- the paragraph


def test_who_owns_what_is_told():
    """Optimizers that have other parameters on each rank; torch's own that deals out what it was given."""
    ranks = [[wrapped(1), optimizer(names=names, wrapper=0), stepped("gh")] for names in ("ab", "cd")]
    assert "4 parameters dealt out over 2 ranks" in parallelism_seen.paragraph(world(*ranks))
    (reason,) = {judge(world(*ranks)).skipped_because}
    assert reason == "ddpcheck saw the optimizer of each rank step other parameters"
    zero = [wrapped(1), optimizer(wrapper=0, kind="ZeroRedundancyOptimizer", sharded=True), stepped("gh")]
    assert "2 parameters stepped by one rank each (ZeroRedundancyOptimizer)" in parallelism_seen.paragraph(
        world(zero, zero)
    )
    hooked = [wrapped(1), optimizer(wrapper=0, apart=True), stepped("gh")]
    assert "leaves each rank its own gradients" in parallelism_seen.paragraph(world(hooked, hooked))


def test_stages_by_hand_are_told_of_and_not_understood():
    """Tensors that are sent, and are nobody's parameters as far as was seen."""
    sends = [call(0, 5, op="send", peer=1), optimizer(), stepped("gh"), transfers(others=3)]
    other = [call(0, 5, op="send", peer=0), optimizer(), stepped("ij"), transfers(others=3)]
    told = parallelism_seen.paragraph(world(sends, other))
    assert told.startswith("nothing: ")
    assert "from rank to rank (0 to 1 and 1 to 0)" in told or "from rank to rank (0 to 1, 1 to 0)" in told
    gossip = [[*one[:-1], transfers(of_models=3)] for one in (sends, other)]
    assert "from rank to rank" not in parallelism_seen.paragraph(world(*gossip))


def test_tensors_made_plain_for_a_wrapper():
    """No optimizer steps a DTensor, and the model is split all the same."""
    split = ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)}
    ranks = [[split, wrapped(1), optimizer(wrapper=0), stepped("gh")] for _ in range(2)]
    assert "tensor parallelism over 2 ranks" in parallelism_seen.paragraph(world(*ranks))
