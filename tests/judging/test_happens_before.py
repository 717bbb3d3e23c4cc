"""The order between ranks that collectives enforce, over calls written by hand."""

from __future__ import annotations

import random
import time

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.happens_before import Order, members
from tests.judging.written import call, save, world


def order(*ranks, **more):
    return Order(world(*ranks, **more))


def something(line=90):
    """A record that takes a number, and orders nothing."""
    return save("/somewhere", line)


def two(ours, theirs):
    """On rank 0 an event before (number 2) and one behind (4) a call; on rank 1 the same around its own."""
    return order([something(), ours, something()], [something(), theirs, something()])


# --- one call between two ranks


@pytest.mark.parametrize(
    "op", ["barrier", "all_reduce", "all_gather_object", "reduce_scatter", "all_to_all", "ddp-gradients", "join"]
)
def test_calls_in_which_all_wait_order_both_ways(op):
    """What is before such a call on any rank is before what is behind it on every other."""
    it = two(call(1, 5, op), call(1, 5, op))
    assert it.enforced(0, 2, 1, 4)
    assert it.enforced(1, 2, 0, 4)
    assert not it.enforced(0, 4, 1, 4)
    assert not it.enforced(0, 2, 1, 2)
    assert not it.enforced(0, 4, 1, 2)


@pytest.mark.parametrize(
    ("op", "kind"), [("broadcast", ""), ("scatter_object_list", "scatter"), ("ddp-buffers", ""), ("ddp-buckets", "")]
)
def test_a_broadcast_orders_away_from_its_source(op, kind):
    """The source waits for nobody."""
    it = two(call(1, 5, op, peer=0, kind=kind), call(1, 5, op, peer=0, kind=kind))
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(1, 2, 0, 4)


def stored(key, sets):
    return ev.Stored, {"key": key, "sets": sets}


def test_a_key_of_a_store_orders_who_waits_for_it():
    """What is before the set comes before what is behind the wait; nothing else does."""
    it = two(stored("saved", True), stored("saved", False))
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(0, 4, 1, 4)
    assert not it.enforced(1, 2, 0, 4)
    assert not two(stored("saved", True), stored("other", False)).enforced(0, 2, 1, 4)
    # Of a key that is set twice, or by several, the first to come may have ended the wait.
    again = order([stored("saved", True), something(), stored("saved", True)], [stored("saved", False), something()])
    assert not again.enforced(0, 3, 1, 3)
    both = order([something(), stored("a", True)], [stored("a", True)], [stored("a", False), something()])
    assert not both.enforced(0, 2, 2, 3)


@pytest.mark.parametrize(("op", "kind"), [("reduce", ""), ("gather", ""), ("gather_object", "gather")])
def test_a_reduction_to_one_orders_towards_it(op, kind):
    """Only the destination waits for the others."""
    it = two(call(1, 5, op, peer=1, kind=kind), call(1, 5, op, peer=1, kind=kind))
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(1, 2, 0, 4)


def test_a_message_orders_its_receiver():
    """A receive comes after what the sender did before; its tag and its count must fit."""
    it = two(call(1, 5, "send", peer=1), call(1, 5, "recv", peer=0))
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(1, 2, 0, 4)
    assert not two(call(1, 5, "send", peer=1), call(2, 5, "recv", peer=0)).enforced(0, 2, 1, 4)
    assert not two(call(1, 5, "send", peer=1, detail="tag 7"), call(1, 5, "recv", peer=0)).enforced(0, 2, 1, 4)
    assert not two(call(1, 5, "send", peer=1), call(1, 5, "recv")).enforced(0, 2, 1, 4)


def test_an_asynchronous_call_orders_where_it_is_waited_for():
    """Its rank goes on at once; it has been met by the others when its work was waited for."""
    ours = [something(), call(1, 5, waits=False), something(), call(1, 6, "wait", of=3), something()]
    it = order(ours, [something(), call(1, 5), something()])
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(1, 2, 0, 4)
    assert it.enforced(1, 2, 0, 6)


def test_an_asynchronous_call_that_nobody_waits_for_is_only_sent():
    """Without a wait it says nothing about its own rank."""
    it = order([something(), call(1, 5, waits=False), something()], [something(), call(1, 5), something()])
    assert it.enforced(0, 2, 1, 4)
    assert not it.enforced(1, 2, 0, 4)


def test_calls_within_join_order_nothing():
    """There a rank need not do what the others do."""
    assert not two(call(1, 5, joined=True), call(1, 5, joined=True)).enforced(0, 2, 1, 4)


def test_making_a_group_orders_nothing():
    """torch lets a rank go on before the others have come; its number is no gap."""
    own = [call(1, 5), something(), call(2, 5, "new_group"), something(), call(3, 5)]
    assert not order(own, own).enforced(0, 3, 1, 5)
    assert order(own, own).enforced(0, 3, 1, 7)


def test_calls_of_unknown_groups_order_nothing():
    """Who belongs to them is not known."""
    assert members("?", 4) == ()
    assert [members(name, 4) for name in ("9" * 5000, "0,²", "0,", "-1")] == [()] * 4
    assert not two(call(1, 5, group="?"), call(1, 5, group="?")).enforced(0, 2, 1, 4)


# --- beyond one call


def test_the_same_rank_is_in_its_own_order():
    """On one rank the order is that of its records."""
    it = order([something(), something()], [])
    assert it.enforced(0, 2, 0, 3)
    assert not it.enforced(0, 3, 0, 2)


def test_joining_the_group_orders_what_was_before():
    """All ranks meet when the group is made: its record has number 1."""
    it = order([something()], [something()])
    assert it.enforced(0, 0, 1, 2)
    assert not it.enforced(0, 2, 1, 2)


def test_order_passes_through_a_third_rank():
    """A pair of messages by way of another rank orders as one would."""
    it = order(
        [something(), call(1, 5, "send", peer=2)],
        [call(1, 5, "recv", peer=2), something()],
        [call(1, 5, "recv", peer=0), call(1, 6, "send", peer=1)],
    )
    assert it.enforced(0, 2, 1, 3)
    assert not it.enforced(1, 3, 0, 2)


def test_a_group_orders_its_members_alone():
    """A barrier of ranks 0 and 2 says nothing about rank 1."""
    own = [something(), call(1, 5, group="0,2#1"), something()]
    it = order(own, [something(), something(), something()], own)
    assert it.enforced(0, 2, 2, 4)
    assert not it.enforced(0, 2, 1, 4)
    assert members("0,2#1", 3) == (0, 2)


def test_the_next_meeting_counts_and_not_the_last():
    """Of many calls, the first behind an event on one rank is the one that orders it."""
    calls = [made for number in range(1, 6) for made in (call(number, 5), something())]
    it = order(calls, calls)
    assert it.enforced(0, 3, 1, 5)
    assert not it.enforced(0, 3, 1, 3)


# --- evidence that is not whole


def test_calls_that_are_not_on_record_may_have_ordered():
    """Where numbers are missing on both ranks around the events, the order is not denied."""
    thinned = [call(1, 5), something(), something(), call(9, 5)]
    assert order(thinned, thinned).enforced(0, 3, 1, 4)
    assert not order(thinned, [call(1, 5), something(), something(), call(2, 5)]).enforced(0, 3, 1, 4)
    assert not order([call(1, 5), something(), call(2, 5)], thinned).enforced(0, 3, 1, 3)


def test_a_rank_without_evidence_is_not_accused():
    """A rank that is missing, or whose disk was full, may have done what is enforced."""
    assert order([something()], [], world_size=3).enforced(0, 2, 2, 2)
    over = world([something()], [something()])
    over.ranks[0].process.gap = "there was no room for more"
    assert Order(over).enforced(0, 2, 1, 2)


def test_a_world_of_one_kind_of_record_is_no_trouble():
    """Without a call there is only the joining."""
    assert not order([something()], [something()]).enforced(0, 2, 1, 2)


# --- many


def test_against_the_definition():
    """On random programs the answer is that of a search over every single event."""
    draw = random.Random(0)
    for _ in range(30):
        size = draw.choice([2, 3])
        ranks = program(draw, size)
        it = order(*ranks, world_size=size)
        edges = definition(ranks)
        for _ in range(20):
            a, b = draw.sample(range(size), 2)
            x, y = draw.randrange(2, len(ranks[a]) + 2), draw.randrange(2, len(ranks[b]) + 2)
            if ranks[a][x - 2][0] is ev.File and ranks[b][y - 2][0] is ev.File:
                assert it.enforced(a, x, b, y) == reachable(edges, (a, x), (b, y))


def program(draw, size):
    """Ranks with the same random collectives, and events between them."""
    ranks = [[] for _ in range(size)]
    for number in range(1, 9):
        op = draw.choice(["barrier", "broadcast", "reduce"])
        peer = draw.randrange(size) if op != "barrier" else None
        for own in ranks:
            own.extend(something() for _ in range(draw.randrange(3)))
            own.append(call(number, 5, op, peer=peer))
    for own in ranks:
        own.append(something())
    return ranks


def definition(ranks):
    """Edges between (rank, n): along each rank, and from before a call to behind it where it is waited for."""
    edges = {}
    for r, own in enumerate(ranks):
        for n in range(2, len(own) + 2):
            edges.setdefault((r, n), set()).add((r, n + 1))
    places = [[n for n, made in enumerate(own, 2) if made[0] is ev.Call] for own in ranks]
    for k in range(8):
        op, peer = ranks[0][places[0][k] - 2][1]["op"], ranks[0][places[0][k] - 2][1].get("peer")
        for a in range(len(ranks)):
            for b in range(len(ranks)):
                if a != b and (op == "barrier" or (op == "broadcast" and a == peer) or (op == "reduce" and b == peer)):
                    edges[a, places[a][k]].add((b, places[b][k] + 1))
    return edges


def reachable(edges, start, goal):
    seen, todo = set(), [start]
    while todo:
        here = todo.pop()
        if here == goal:
            return True
        if here not in seen:
            seen.add(here)
            todo.extend(edges.get(here, ()))
    return False


def test_long_runs_are_quick():
    """A hundred thousand calls are put in order once, and then asked about in no time."""
    calls = [call(number, 5, ("ddp-gradients", "all_reduce")[number % 2]) for number in range(1, 100_001)]
    it = order(calls, calls)
    it.enforced(0, 50, 1, 40)
    began = time.process_time()
    for n in range(1000):
        assert it.enforced(0, 1000 + n, 1, 1003 + n)
        assert not it.enforced(0, 1003 + n, 1, 1000 + n)
    assert time.process_time() - began < 1.0


# --- calls that are only queued on a device


def ahead(*calls):
    """The host has come here, and its device has not finished these."""
    return ev.HostAhead, {"calls": list(calls)}


@pytest.mark.parametrize("op", ["all_reduce", "ddp-gradients", "all_gather"])
def test_a_queued_call_orders_the_hosts_but_for_one_that_was_seen_ahead_of_it(op):
    """Nobody sees every wait for a device: only what was proven is not ordered, and what comes later is."""
    queued = call(1, 5, op, queued=True)
    it = two(queued, queued)
    assert it.enforced(0, 2, 1, 4)
    assert it.enforced(1, 2, 0, 4)
    it = order([something(), queued, something()], [something(), queued, something(), ahead(3), something()])
    assert not it.enforced(0, 2, 1, 4), "rank 1 was there before its device was done"
    assert it.enforced(0, 2, 1, 6), "it may have waited since"
    assert it.enforced(1, 2, 0, 4), "rank 0 was not seen ahead"


def test_only_the_calls_that_were_not_finished_order_nothing():
    """The one before them was."""
    calls = [call(1, 5, "all_reduce", queued=True), call(2, 6, "all_reduce", queued=True)]
    it = order([something(), *calls, something()], [something(), *calls, something(), ahead(4)])
    assert it.enforced(0, 2, 1, 5)
    it = order([something(), *calls, something()], [something(), *calls, something(), ahead(3, 4)])
    assert not it.enforced(0, 2, 1, 5)


def test_a_call_that_holds_the_host_orders_it_all_the_same():
    """A barrier behind the queued call, or an exchange of objects."""
    calls = [call(1, 5, "all_reduce", queued=True), call(2, 6, "barrier")]
    it = order([something(), *calls, something()], [something(), *calls, something(), ahead(3)])
    assert it.enforced(0, 2, 1, 5)


def test_a_broadcast_that_is_only_queued():
    """Its source waits for nobody anyhow; the others only for their device."""
    queued = call(1, 5, "broadcast", peer=0, queued=True)
    it = order([something(), queued, something()], [something(), queued, something(), ahead(3)])
    assert not it.enforced(0, 2, 1, 4)


def test_an_asynchronous_call_orders_after_its_wait_unless_it_was_seen_unfinished():
    """``Work.wait()`` holds up the device's stream alone."""
    begun, waited = call(1, 5, "all_reduce", waits=False, queued=True), call(1, 6, "wait", of=3, queued=True)
    it = order([something(), begun, waited, something()], [something(), begun, waited, something()])
    assert it.enforced(0, 2, 1, 5)
    it = order([something(), begun, waited, something()], [something(), begun, waited, something(), ahead(3)])
    assert not it.enforced(0, 2, 1, 5)


def test_a_message_that_is_only_queued():
    """Who receives goes on before it has come."""
    sent, received = call(1, 5, "send", peer=1, queued=True), call(1, 5, "recv", peer=0, queued=True)
    assert two(sent, received).enforced(0, 2, 1, 4)
    assert not order([something(), sent], [something(), received, something(), ahead(3)]).enforced(0, 2, 1, 4)
