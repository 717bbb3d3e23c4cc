"""What the ranks of a property are sent, example by example, and what the engine hears."""

from __future__ import annotations

import pytest

from ddpcheck.ranks import messages
from ddpcheck.ranks.property_examples import Examples
from ddpcheck.vocabulary.model import CallSite, CheckRun, ExampleEnd

SITE = CallSite(file="/project/test_x.py", line=5, function="test_x")
EXAMPLE = messages.Example(choices=[1])


class Rank:
    """As much of a watched rank as examples are about."""

    def __init__(self, rank):
        self.rank, self.resting, self.example, self.noted = rank, False, None, []

    def begin_example(self):
        self.resting, self.example, self.noted = False, None, []


@pytest.fixture
def examples():
    """Two ranks that wait for their first example, which the engine knows."""
    made = Examples([Rank(0), Rank(1)])
    for r in made.ranks:
        made.follow(r)
    assert made.to_engine(()) == messages.AllFollowing()
    return made


def ends(examples, rank, status="passed"):
    examples.end(examples.ranks[rank], messages.ExampleEnded(end=ExampleEnd(status=status, at=1.0)))


def asks(examples, rank, what=b"a number"):
    examples.ask(examples.ranks[rank], messages.Asked(ask=what, where=SITE))


def sent(examples, failed=False):
    return {r.rank: message for r, message in examples.to_ranks(failed)}


def test_nothing_is_said_before_all_ranks_wait():
    examples = Examples([Rank(0), Rank(1)])
    examples.follow(examples.ranks[0])
    assert examples.to_engine(()) is None
    assert not examples.at_rest


def test_an_example_that_passes(examples):
    """The engine hears of the end of an example once, when it has ended in the last rank."""
    assert examples.at_rest
    examples.begin(EXAMPLE)
    assert not examples.at_rest
    ends(examples, 1)
    assert examples.to_engine(()) is None
    examples.ranks[1].noted.append("x")
    ends(examples, 0)
    checks = [CheckRun(check="gradient-sync", status="held")]
    over = examples.to_engine(checks)
    assert [end.status for end in over.ends] == ["passed", "passed"]
    assert (over.checks, over.noted) == (tuple(checks), ((), ("x",)))
    assert examples.to_engine(()) is None
    assert examples.at_rest
    assert sent(examples) == {}


def test_a_failure_is_not_told_as_an_end(examples):
    """Where a rank has failed, the record tells; the ranks that wait are let go, once."""
    examples.begin(EXAMPLE)
    ends(examples, 0, "failed")
    ends(examples, 1)
    assert examples.to_engine(()) is None
    assert sent(examples, failed=True) == {0: messages.Finish(), 1: messages.Finish()}
    assert sent(examples, failed=True) == {}


def test_a_failure_for_the_reader_goes_its_own_way(examples):
    """The rank that has failed in the final example raises; the others are let go."""
    examples.begin(messages.Example(choices=[], final=True))
    ends(examples, 0, "failed")
    ends(examples, 1)
    assert sent(examples, failed=True) == {1: messages.Finish()}


def test_the_end_of_all_examples(examples):
    examples.finish()
    assert not examples.at_rest
    assert sent(examples) == {0: messages.Finish(), 1: messages.Finish()}


def test_a_draw_is_passed_on_when_all_have_asked_for_it(examples):
    examples.begin(EXAMPLE)
    asks(examples, 0)
    assert examples.to_engine(()) is None
    asks(examples, 1)
    assert sent(examples) == {}
    assert examples.to_engine(()) == messages.Asked(ask=b"a number", where=SITE)
    assert examples.to_engine(()) is None
    assert sent(examples) == {}
    given = messages.Given(choice=3)
    assert {r.rank: message for r, message in examples.give(given)} == {0: given, 1: given}
    asks(examples, 0)
    asks(examples, 1)
    assert isinstance(examples.to_engine(()), messages.Asked)


def test_draws_that_differ(examples):
    """Ranks that ask for different things are told at once, with what each asked for."""
    examples.begin(EXAMPLE)
    asks(examples, 0)
    asks(examples, 1, b"another")
    told = sent(examples)
    assert set(told) == {0, 1}
    assert {rank: asked.ask for rank, asked in told[0].asked.items()} == {0: b"a number", 1: b"another"}
    assert examples.to_engine(()) is None


def test_a_draw_on_one_rank(examples):
    """A rank that draws when the others have ended is told at once."""
    examples.begin(EXAMPLE)
    asks(examples, 0)
    assert sent(examples) == {}
    ends(examples, 1)
    assert set(sent(examples)[0].asked) == {0}


def test_a_draw_while_another_rank_fails(examples):
    """The wait of a rank that draws is not a failure of its own."""
    examples.begin(EXAMPLE)
    asks(examples, 0)
    ends(examples, 1, "failed")
    assert sent(examples, failed=True) == {0: messages.Given(stop=True), 1: messages.Finish()}
