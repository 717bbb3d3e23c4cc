"""What every exchange leaves out, though it began alike on all ranks."""

from __future__ import annotations

import pytest

from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.test_brought_together import exchanged_before
from tests.judging.written import world


def rank(own, meets, values="vv"):
    """Before steps 2, 4 and 6 something is exchanged: what meets is an m then, the rest is this rank's own."""
    records = [optimizer(values=values)]
    for number in range(7):
        if number and number % 2 == 0:
            together = meets[number // 2 - 1]
            records.append(exchanged_before(number, "".join("m" if place in together else own for place in (0, 1))))
        records.append(stepped("gh", own * 2, number=number))
    return records


def found(meets, **more):
    values = more.get("values", ("vv", "vv"))
    return judge(world(rank("p", meets, values[0]), rank("q", meets, values[1]))).findings


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
