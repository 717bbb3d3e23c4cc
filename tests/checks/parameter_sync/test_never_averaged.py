"""What every exchange leaves out, though it began alike on all ranks."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.loaded import loader, through
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.test_brought_together import exchanged_before
from tests.judging.written import call, world
from tests.judging.written_state import Forms, weight


def rank(own, meets, values="vv", before=(), kinds=("float32[4]", "float32[4]")):
    """Before steps 2, 4 and 6 something is exchanged: what meets is an m then, the rest is this rank's own."""
    described = optimizer(values=values)
    described[1]["parameters"] = [
        msgspec.structs.replace(one, kind=kind) for one, kind in zip(described[1]["parameters"], kinds, strict=True)
    ]
    records = [*before, described]
    for number in range(7):
        if number and number % 2 == 0:
            together = meets[number // 2 - 1]
            records.append(exchanged_before(number, "".join("m" if place in together else own for place in (0, 1))))
        records.append(stepped("gh", own * 2, number=number))
    return records


def found(meets, values=("vv", "vv"), before=((), ()), **more):
    first, second = (rank("pq"[n], meets, values[n], before[n], **more) for n in range(2))
    return judge(world(first, second)).findings


def test_one_of_two_is_left_out_each_time():
    (one,) = found([{0}, {0}, {0}])
    assert (one.severity, one.ranks, one.step, one.where.line, one.count) == ("warning", (0, 1), 2, 20, 3)
    assert "never" in one.found


def test_experts_are_each_ranks_own():
    """They were other ones from the start; what was a constant then may be a part of them."""
    assert not found([{0}] * 3, values=("vx", "vy"))


@pytest.mark.parametrize("meets", [[{0, 1}] * 3, [{0}, {1}, {0}], [set()] * 3])
def test_turns_and_whole_averages(meets):
    """Fragments take turns; gossip brings nothing together."""
    assert not found(meets)


@pytest.mark.parametrize(("sent", "number"), [("float32[9, 2], SUM", 0), ("float32[4], SUM", 1), ("float32[], SUM", 1)])
def test_what_is_sent_now_and_then(sent, number):
    """A large table, seldom; what has the shape of others may be those."""
    calls = [[call(1, 21, op="all_reduce", detail=sent)]] * 2
    assert len(found([{0}] * 3, before=calls, kinds=("float32[4]", "float32[9, 2]"))) == number


def test_parts_that_each_rank_keeps_for_itself():
    """As it saves them, or reads data of its own; not where one rank saves for all, or one dataset is dealt out."""

    def saves(path):
        return Forms().saved(10, path, weight("b", 1, 2))

    def reads(contents):
        return [loader(), *through(list(range(8)), contents=contents)]

    assert found([{0}] * 3, before=(saves("/job/0.pt"), saves("/job/1.pt"))) == ()
    assert len(found([{0}] * 3, before=(saves("/job/0.pt"), ()))) == 1
    assert found([{0}] * 3, before=(reads([*range(8)]), reads([*range(8, 16)]))) == ()
    assert [f.check for f in found([{0}] * 3, before=(reads([*range(8)]), reads([*range(8)])))]
