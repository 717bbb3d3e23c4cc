"""Between which ranks tensors go, from evidence that is written by hand."""

from __future__ import annotations

from ddpcheck.facts import exchanges
from tests.facts.trained import own, trained
from tests.judging.written import Made, call


def gathered(_: int) -> list[Made]:
    return [call(0, 5, op="all_gather", detail="float32[64, 8]")]


def test_what_goes_between_ranks_before_their_last_step():
    assert exchanges.between(trained({"a.w": own}, more=gathered)) == [frozenset({0, 1})]


def test_what_goes_between_them_after_it_has_no_part_in_training():
    assert exchanges.between(trained({"a.w": own}, after=gathered)) == []
