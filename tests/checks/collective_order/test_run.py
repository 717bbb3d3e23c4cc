"""The judge of collective-order, over calls written by hand: what parts, whose line is told, and why."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from ddpcheck.judging.call_divergence import partings
from ddpcheck.judging.world import World
from tests.judging.loaded import OWN, loader
from tests.judging.written import call, ended, raised, rank, step, world, wrapped

judge = judge_of("collective-order", "run")
judge_waiting = judge_of("no-hang", "run")

CLOSED = "[…]gloo/transport/tcp/pair.cc: Connection closed by peer"


def left(line=9):
    return ev.Left, {"site": line}


def ask(*ranks, **more):
    return verdict(world(*ranks, **more))


def verdict(over):
    judged = judge(over)
    assert judged.check == "collective-order"
    return judged


def parted(*ranks, **more):
    (finding,) = ask(*ranks, **more).findings
    return finding


def hung(*ranks):
    """The finding of a hang in these calls: each rank waits in its last one."""
    waiting = [[*own, (ev.Pulse, {"site": 0, "doing": "", "pending": len(own) + 1})] for own in ranks]
    judged = judge_waiting(world(*waiting, exit_code=None, signal=15))
    (finding,) = judged.findings
    return finding


# --- silent


def test_equal_calls_hold():
    """Each call that all ranks have made counts once."""
    calls = [call(1, 5), call(2, 6, "all_reduce", detail="float32 x 4 sum"), call(3, 7, "broadcast", peer=0), ended()]
    assert (ask(calls, calls).checked, ask(calls, calls).findings) == (3, ())


def test_other_lines_are_no_other_calls():
    """Ranks may make the same call at different lines."""
    assert ask([call(1, 5)], [call(1, 6)]).findings == ()


@pytest.mark.parametrize(("mine", "yours"), [
    ({"op": "all_reduce", "detail": "float32 x 4 sum"}, {"op": "all_reduce", "detail": f"float32 x 4{ev.UNNAMED}"}),
    ({"op": "all_gather_tensor", "kind": "all_gather_into_tensor"}, {"op": "all_gather_into_tensor"}),
])  # fmt: skip
def test_one_call_by_two_functions(mine, yours):
    """What is done counts, and not by which function; a reduction whose name nobody saw may be any."""
    assert ask([call(1, 5, **mine)], [call(1, 6, **yours)]).findings == ()
    other = {**yours, "detail": yours.get("detail", "").replace("4", "5") or "float32 x 5"}
    assert (
        parted([call(1, 5, **mine)], [call(1, 6, **other)]).rule == "collective-order/mismatched-collective-arguments"
    )


def test_a_reduction_without_a_name_is_not_held():
    """A sum on one rank, and a largest element on the other, would look the same."""
    unnamed = call(2, 6, "all_reduce", detail=f"float32 x 4{ev.UNNAMED}")
    assert ask([call(1, 5), unnamed], [call(1, 5), unnamed]).checked == 1


def test_objects_meet_objects():
    """Their bytes would be taken for a tensor."""
    objects = call(1, 5, "all_gather_object", kind="all_gather")
    assert parted([objects], [call(1, 6, "all_gather")]).rule == "collective-order/different-collectives"


@pytest.mark.parametrize(("what", "because"), [
    ("calls", "calls by symmetric memory or by a group written in Python are not seen"),
    ("capture", "the calls that replays of a CUDA graph make are not seen"),
    ("memory", ""),
])  # fmt: skip
def test_calls_that_are_not_seen_are_not_held(what, because):
    """A difference among those that were is told all the same."""
    overlooked = (ev.Overlooked, {"what": what})
    judged = ask([overlooked, call(1, 5)], [call(1, 5)])
    assert (judged.checked, judged.skipped_because) == ((0, because) if because else (1, ""))
    assert parted([overlooked, call(1, 5)], [call(1, 5, "all_reduce")]).rule == "collective-order/different-collectives"


def test_without_calls_nothing_is_checked():
    """A run without communication says so."""
    judged = ask([step(5)], [])
    assert (judged.checked, judged.skipped_because) == (
        0,
        "no collective was recorded on two ranks of its group",
    )


@pytest.mark.parametrize("op", ["send", "irecv", "wait", "ddp-unfinished"])
def test_calls_of_one_rank_are_not_compared(op):
    """Messages have two ends, and waiting is nobody else's affair."""
    assert ask([call(1, 5, op, peer=1), call(1, 6)], [call(1, 6)]).findings == ()


def test_within_join_ranks_may_do_what_they_like():
    """What is not counted is not compared."""
    own = call(0, 5, "all_reduce", joined=True)
    assert ask([own, own, call(1, 6, "join")], [own, call(1, 6, "join")]).findings == ()


def test_groups_are_compared_among_their_members():
    """Ranks outside of a group have no calls on it; two groups do not mix."""
    ours, theirs = call(1, 5, group="0,1#1"), call(1, 6, "all_reduce", group="2,3#1")
    assert ask([ours], [ours], [theirs], [theirs]).findings == ()


def test_wrappers_are_counted_in_their_group():
    """A wrapper of a small group makes the numbers of later ones another, and no difference."""
    small = call(1, 5, "ddp-construct", group="0,1#1", detail="wrapper 0")
    own = [small, call(1, 6, "ddp-construct", detail="wrapper 1"), call(2, 7, "ddp-gradients", detail="wrapper 1")]
    other = [call(1, 6, "ddp-construct", detail="wrapper 0"), call(2, 7, "ddp-gradients", detail="wrapper 0")]
    assert ask(own, own, other).findings == ()


def test_calls_that_are_not_on_record_are_not_missed():
    """Where a rank's evidence is thinned, full or cut off, nothing is said of what lacks."""
    calls = [call(number, 5) for number in range(1, 6)]
    assert ask([*calls, ended()], [calls[0], calls[4], ended()]).findings == ()
    assert ask([*calls, ended()], calls[:3], exit_code=None).findings == ()
    over = world([*calls, ended()], [*calls[:3], ended()])
    over.ranks[1].process.gap = "there was no room for more"
    assert verdict(over).findings == ()


def test_what_a_failure_leaves_behind_is_its_consequence():
    """A rank that has raised makes no more calls."""
    over = World([rank(0, [call(1, 5), call(2, 5), raised(CLOSED, 5, lost_peer=True)], exit_code=1),
                  rank(1, [call(1, 5), raised("no", 8)], exit_code=1)], 2)  # fmt: skip
    assert verdict(over).findings == ()


# --- violated


def test_another_call():
    """The first place where the calls part, with every rank's line, and what went before."""
    finding = parted([call(1, 5), call(2, 6), ended()], [call(1, 5), call(2, 7, "all_reduce"), ended()])
    assert finding.found == (
        "other calls after 1 equal call on the default group: rank 0 calls barrier() at train.py:6; rank 1 calls "
        "all_reduce() at train.py:7; nothing was raised, and the program went on with whatever came of it"
    )
    assert (finding.subject, finding.severity) == ("call 2 on the default group", "error")
    assert [(r, site.line) for r, site in finding.proof] == [(0, 6), (1, 7)]
    assert finding.links == ("call world 2",)


def test_another_size():
    """The sizes of tensors must agree."""
    finding = parted(*[[call(1, 5, "all_reduce", detail=f"float32[{n}, 3]"), ended()] for n in (2, 2, 4)])
    assert finding.ranks == (2,)
    assert "size" in finding.cause
    assert finding.where.line == 5


def test_another_source():
    """Ranks that disagree about the source of a broadcast are told which they name."""
    finding = parted([call(1, 5, "broadcast", peer=0)], [call(1, 5, "broadcast", peer=1)])
    assert "do not agree on who" in finding.cause
    assert "from rank 0" in finding.found


def test_the_first_parting_is_told_and_no_other():
    """What follows is its consequence."""
    one = [call(1, 5), call(2, 6, "all_reduce"), call(3, 5), ended()]
    other = [call(1, 5), call(2, 5), call(3, 6, "all_reduce"), ended()]
    assert parted(one, other).links == ("call world 2",)


def test_groups_that_are_made_in_another_order():
    """new_group takes part in the order, with its ranks."""
    finding = parted([call(1, 5, "new_group", detail="ranks 0,1")], [call(1, 5, "new_group", detail="ranks 0")])
    assert "other groups" in finding.cause


def test_wrappers_in_another_order():
    """Two models whose backward comes in another order on one rank."""
    built = [call(1, 5, "ddp-construct", detail="wrapper 0"), call(2, 6, "ddp-construct", detail="wrapper 1")]
    finding = parted(
        [*built, call(3, 7, "ddp-gradients", detail="wrapper 0")],
        [*built, call(3, 8, "ddp-gradients", detail="wrapper 1")],
    )
    assert "wrappers in another order" in finding.cause


def test_a_call_too_many_that_went_well_is_a_risk():
    """A broadcast at the end for which nobody is left, and that nobody noticed."""
    finding = parted([call(1, 5), call(2, 6, "broadcast", peer=0), ended()], [call(1, 5), ended()])
    assert (finding.severity, finding.ranks) == ("warning", (1,))
    assert "rank 1 makes no further call" in finding.found


def test_a_lost_peer_whose_calls_were_fewer():
    """A rank that has left for good is why the other lost it: told once, and as what ended the program."""
    over = World(
        [
            rank(0, [call(1, 5), call(2, 5), raised(CLOSED, 5, lost_peer=True)], exit_code=1),
            rank(1, [call(1, 5), left(), ended()]),
        ],
        2,
    )
    (finding,) = verdict(over).findings
    assert (finding.severity, finding.links[0], finding.also) == ("error", "stop", ("rank-failure",))
    assert "so rank 0 raised RuntimeError" in finding.found


def test_a_call_that_died_of_its_difference():
    """A rank that is killed, or raises, in the very call has not failed of its own."""
    calls = [[call(1, 5, "broadcast", detail=f"float32 x {n}", peer=0)] for n in (144, 96)]
    lost = raised(CLOSED, 5, lost_peer=True)
    over = World([rank(0, [*calls[0], lost], exit_code=1), rank(1, calls[1], exit_code=None, signal=6)], 2)
    assert "died (SIGABRT)" in verdict(over).findings[0].found
    over = World([rank(0, [*calls[0], lost], exit_code=1), rank(1, [*calls[1], raised("sizes", 5)], exit_code=1)], 2)
    assert verdict(over).findings[0].links[0] == "stop"


def test_a_difference_long_before_a_failure_is_another_mistake():
    """It is told beside the failure; one that only came with the failure is not."""
    calls = [[call(1, 5, "all_reduce", detail=f"float32[{n}]"), call(2, 6), raised("no", 8)] for n in (1, 2)]
    assert len(ask(*calls, exit_code=1).findings) == 1
    late = [[call(1, 5), raised("no", 8), call(2, 6)], [call(1, 5), call(2, 7, "all_reduce"), raised("no", 8)]]
    assert ask(*late, exit_code=1).findings == ()


def test_the_odd_ranks_are_the_fewer():
    """Of many ranks those that differ from most are named; of two, the one at a line where the other never is."""
    usual, odd = [call(1, 5)], [call(1, 6, "all_reduce")]
    assert parted(usual, odd, usual).ranks == (1,)
    two = [[call(1, 5, "all_gather"), call(2, 5, "all_gather"), call(3, 6, "all_gather_object")],
           [call(1, 5, "all_gather"), call(2, 5, "all_gather"), call(3, 5, "all_gather")]]  # fmt: skip
    assert partings(world(*two))[0].odd == (0,)
    assert partings(world(*reversed(two)))[0].odd == (1,)


def test_calls_that_cross():
    """They match, and nothing else tells: both meetings are told, and the line that both ranks call."""
    finding = parted([call(1, 5, "all_reduce"), call(2, 6, "all_reduce"), ended()],
                     [call(1, 6, "all_reduce"), call(2, 7, "all_reduce"), ended()])  # fmt: skip
    assert finding.found == (
        "matching calls from lines in different orders: in call 1, rank 0 calls all_reduce() at train.py:5; rank 1 "
        "calls all_reduce() at train.py:6; in call 2, rank 0 calls all_reduce() at train.py:6; rank 1 calls "
        "all_reduce() at train.py:7. Both ranks call train.py:6, and these calls do not meet; nothing was raised, and "
        "the program went on with whatever came of it"
    )
    assert (finding.rule, finding.severity, finding.ranks) == ("collective-order/crossed-calls", "error", (0,))
    assert finding.where.line == 5


def test_lines_that_met_in_both_orders_are_not_held():
    """They may be branches of one call; the reason says what was not seen."""
    judged = ask([call(1, 5, "all_reduce"), call(2, 6, "all_reduce")],
                 [call(1, 6, "all_reduce"), call(2, 5, "all_reduce")])  # fmt: skip
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == (
        "calls at train.py:6 and train.py:5 met in both orders, and whether these lines make one call was not seen"
    )


def test_matching_calls_from_different_lines_are_counted_apart():
    """They match, and may be the first that are not the same."""
    same, own = call(1, 5), [call(2, line, "all_reduce") for line in (6, 7)]
    finding = parted(*[[same, own[n], call(3, 8, "all_reduce", detail=f"float32 x {n}"), ended()] for n in (0, 1)])
    assert finding.found.startswith(
        "other calls after 1 equal call and 1 matching call from different lines on the default group: rank 0 calls"
    )
    late = [call(9, 8, "all_reduce", detail=f"float32 x {n}") for n in (0, 1)]
    assert parted(*[[one, ended()] for one in late]).found.startswith("other calls at call 9 on the default group:")


# --- the order of parameters


def test_parameters_in_another_order():
    """DDP pairs parameters by their place: the first place that differs is told."""
    finding = parted(*[[wrapped(5, order=order)] for order in (["a", "b", "c"], ["a", "c", "b"])])
    assert (finding.ranks, finding.subject, finding.where.line) == ((1,), "b", 5)
    assert "b on rank 0 and c on rank 1 at place 1" in finding.found
    assert finding.links == ("wrapper 0",)


def test_the_same_order_holds():
    """So do other parameters, which DDP itself refuses, or which a group of some ranks has."""
    assert ask([wrapped(5, order=["a", "b"])], [wrapped(5, order=["a", "b"])]).findings == ()
    assert ask([wrapped(5, order=["a", "b"])], [wrapped(5, order=["a", "z"])]).findings == ()
    other = wrapped(5, order=["b", "a"], group="1#1")
    assert ask([wrapped(5, order=["a", "b"])], [other, wrapped(5, wrapper=1, order=["a", "b"])]).findings == ()


# --- likely causes, as a hang tells them


def batches(*ends, loader=0, exhausted=True, trains=True):
    """A pass of so many batches (each with a backward, if it trains), and its end."""
    began = {"loader": loader, "number": 0, "site": 4, "epoch": 0, "base_seed": None, "grad": True}
    made = [(ev.Pass, began)]
    for number in range(ends[0]):
        batch = {"loader": loader, "pass_": 0, "number": number, "indices": b"", "prints": b"", "labels": b""}
        made += [(ev.Batch, batch), call(number + 1, 5, "ddp-gradients")]
    if len(ends) > 1:
        over = {"loader": loader, "number": 0, "batches": ends[0], "samples": 0, "order": ""}
        over["backwards"] = ends[0] if trains else 0
        made.append((ev.PassEnded, {**over, "exhausted": exhausted}))
    return made


def test_fewer_batches():
    """A loader that ran out on one rank while the other went on is named, with its line."""
    finding = hung(batches(4), [*batches(3, None), call(4, 7)])
    assert "the loader at train.py:4 gave rank 1 3 batches, and rank 0 more" in finding.cause
    assert finding.ranks == (1,)
    assert "loader 0" in finding.links
    assert "Give the loader a DistributedSampler" in finding.advice


def test_fewer_batches_of_an_evaluation():
    """Nobody needs equally many there: what is added up can be reduced once."""
    finding = hung(batches(4), [*batches(3, None, trains=False), call(4, 7)])
    assert finding.advice.startswith("Call no collective for each batch of an evaluation")


def test_fewer_batches_of_a_sampler_of_the_program_s_own():
    """It is what has to deal them out evenly."""
    body = "def __iter__(self):\n    yield from order[rank::world]\n"
    site = {"id": 200, "file": "own.py", "line": 1, "function": "__iter__", "text": "", "first": 1, "body": body}
    own = [(ev.Site, site), loader(**OWN, order=[200])]
    finding = hung([*own, *batches(4)], [*own, *batches(3, None), call(4, 7)])
    assert finding.advice.startswith("Let MySampler give every rank as many samples")
    assert str(finding.proof[0][1]) == "own.py:2 in __iter__"


def test_a_skipped_batch():
    """A rank that has gone on to another batch for the same call has left one out before."""
    skipping = batches(4)
    del skipping[4]  # the backward of its second batch
    for number, place in enumerate([2, 5, 7]):
        skipping[place] = call(number + 1, 5, "ddp-gradients")
    finding = hung(batches(4), [*skipping, call(4, 7)])
    assert "rank 1 has gone on to the next batch (batch 2 of pass 0)" in finding.cause
    assert finding.where.line == 5


def test_a_loop_that_is_left_early():
    """A pass that did not come to its end says so."""
    finding = hung(batches(4), [*batches(3, None, exhausted=False), call(4, 7)])
    assert finding.cause == "rank 1 has left the loop over its batches early, after 3 of them"


def test_a_forward_on_one_rank():
    """An evaluation through the wrapper is told with what to do."""
    finding = hung([call(1, 5), call(2, 6, "ddp-buffers")], [call(1, 5), call(2, 5)])
    assert (finding.ranks, finding.where.line) == ((0,), 6)
    assert "model.module" in finding.advice


def test_a_call_of_one_rank_between_two_steps():
    """The second forward, in which DDP exchanges its buckets, is for all ranks to come to: it is not the exception."""
    goes_on = [call(1, 5, "ddp-gradients"), call(2, 4, "ddp-buckets")]
    for ranks, odd in ((([call(1, 5, "ddp-gradients"), call(2, 7)], goes_on), 0),
                       ((goes_on, [call(1, 5, "ddp-gradients"), call(2, 7)]), 1)):  # fmt: skip
        finding = hung(*ranks)
        assert (finding.ranks, finding.where.line) == ((odd,), 7)
        assert finding.cause == f"only rank {odd} comes to this line: it stands under a condition on the rank"


def test_a_call_under_a_condition():
    """A line to which only one rank comes, and that has not been where the others are."""
    finding = hung([call(1, 5, "all_gather")], [call(1, 6)])
    assert finding.cause == "only rank 0 comes to this line: it stands under a condition on the rank"
    finding = hung([call(1, 5, "ddp-gradients")], [call(1, 6, "all_gather_object")])
    assert finding.cause.startswith("rank 1 has not come to the backward at train.py:5")


def test_a_line_that_one_rank_comes_to_more_often():
    """A loop of another length around a collective."""
    both = [call(1, 5, "all_gather"), call(2, 5, "all_gather"), call(3, 6, "ddp-gradients")]
    finding = hung([*both, call(4, 5, "all_gather")], [*both, call(4, 6, "ddp-gradients")])
    assert "rank 0 comes to this line 3 times, and rank 1 2" in finding.cause


# --- tensors of other shapes

REDUCES = "def count(rows):\n    table = make(rows)\n    table = table[: rows.max()]\n    dist.all_reduce(table)\n"


def shapes(mine, yours, op="all_reduce", text=REDUCES):
    """The finding of two reductions in line 4 of this text."""
    site = {"id": 200, "file": "train.py", "line": 4, "function": "count", "text": "", "first": 1, "body": text}
    own = [(ev.Site, site)]
    return parted(*[[*own, call(1, 200, op, detail=detail), ended()] for detail in (mine, yours)])


def test_sums_of_as_many_elements_are_wrong_without_a_word():
    """The tensor's own line is named: what it is cut by."""
    finding = shapes("float32[2, 3] sum", "float32[3, 2] sum")
    assert finding.found.endswith("elements were added up by their place in memory, whatever they stand for")
    assert finding.cause.endswith("; `table` is last set at train.py:3")
    assert finding.proof[0][1].line == 3


@pytest.mark.parametrize(
    ("mine", "yours"),
    [
        ("float32[2, 3] sum", "float32[4] sum"),
        ("float32[2, 3] sum", "int64[3, 2] sum"),
        ("float32[2] max", "float32[1, 2] max"),
    ],
)
def test_what_else_may_come_of_it_is_not_said(mine, yours):
    """Other numbers of elements, or another type: nobody knows."""
    assert "place in memory" not in shapes(mine, yours).found


def test_a_tensor_that_the_text_does_not_name_is_not_told():
    """What is given is no variable, or is set elsewhere."""
    for text in (REDUCES.replace("(table)", "(make(rows))"), "def count(table):\n\n\n    dist.all_reduce(table)\n"):
        assert shapes("float32[2, 3] sum", "float32[3, 2] sum", text=text).cause.endswith("on its data")
