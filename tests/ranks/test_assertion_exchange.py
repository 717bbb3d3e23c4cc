"""The meeting point of the ranks' evidence, as a state machine: given what arrives, it says what to send."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ddpcheck.ranks import messages
from ddpcheck.ranks.assertion_exchange import STUCK_PATIENCE, Exchange
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import CallSite, Finding, Question


def evidence(facts=None, check="parameter-sync", title="assert_parameters_identical", line=3):
    where = CallSite(file="test_x.py", line=line, function="test")
    return messages.Evidence(check=check, title=title, where=where, facts=facts)


def finding(found="something", severity="error", where=None):
    return Finding(
        check="parameter-sync",
        severity=severity,
        ranks=(0,),
        subject="w",
        expected="equality",
        found=found,
        advice="Do.",
        where=where,
    )


class Judge:
    """Asks as many questions as it is told to, then finds; keeps what it was called with."""

    def __init__(self, questions=0, findings=()):
        self.questions, self.findings, self.calls = questions, findings, []

    def __call__(self, check, facts, rounds):
        self.calls.append((check, list(facts), [list(one) for one in rounds]))
        if len(rounds) < self.questions:
            return Question(ask=f"question {len(rounds)}", about=len(rounds))
        return tuple(self.findings)


def silent(exchange, gone=()):
    return exchange.step(gone=set(gone)) == {}


# --- verdicts


def test_nothing_is_said_while_nobody_waits():
    """Without evidence there is nothing to send, also when bodies have ended."""
    exchange = Exchange(2, Judge())
    assert silent(exchange)
    assert silent(exchange, gone={0, 1})
    assert exchange.done == []


def test_the_verdict_comes_with_the_last_rank():
    """No rank goes on before all have come; then all get one verdict."""
    judge = Judge()
    exchange = Exchange(3, judge)
    for rank in (2, 0):
        exchange.arrive(rank, evidence(rank))
        assert silent(exchange)
    assert judge.calls == []
    exchange.arrive(1, evidence(1))
    sent = exchange.step(gone=set())
    assert sorted(sent) == [0, 1, 2]
    assert len(set(map(id, sent.values()))) == 1
    assert sent[0] == messages.Verdict(findings=(), number=1, at=sent[0].at)
    assert judge.calls == [("parameter-sync", [0, 1, 2], [])]


def test_one_rank_has_its_verdict_at_once():
    """With a world size of 1 nobody is waited for."""
    exchange = Exchange(1, Judge())
    exchange.arrive(0, evidence())
    assert isinstance(exchange.step(gone=set())[0], messages.Verdict)


def test_a_verdict_is_given_once():
    """What has been answered is not answered again."""
    exchange = Exchange(1, Judge())
    exchange.arrive(0, evidence())
    exchange.step(gone=set())
    assert exchange.waiting == {}
    assert silent(exchange)
    assert silent(exchange, gone={0})


def test_what_was_found_is_kept_with_its_place():
    """Every time that a check was made is on record: its status, its findings, and the lowest rank's line."""
    exchange = Exchange(2, Judge())
    for rank in (0, 1):
        exchange.arrive(rank, evidence(line=rank + 3))
    exchange.step(gone=set())
    (run,) = exchange.done
    assert (run.check, run.status, run.findings, run.where.line) == ("parameter-sync", "held", (), 3)


def test_a_finding_gets_the_line_of_the_call():
    """A finding without a place gets rank 0's call; one that names its own keeps it."""
    own = CallSite(file="model.py", line=9, function="forward")
    exchange = Exchange(2, Judge(findings=[finding("a"), finding("b", where=own)]))
    exchange.arrive(1, evidence(line=8))
    exchange.arrive(0, evidence(line=7))
    verdict = exchange.step(gone=set())[1]
    assert [f.where for f in verdict.findings] == [CallSite(file="test_x.py", line=7, function="test"), own]
    assert exchange.done[0].status == "violated"
    assert exchange.done[0].findings == verdict.findings


def test_a_warning_is_no_violation():
    """A check whose findings are warnings alone is at risk."""
    exchange = Exchange(1, Judge(findings=[finding(severity="warning")]))
    exchange.arrive(0, evidence())
    assert exchange.step(gone=set())[0].findings[0].severity == "warning"
    assert exchange.done[0].status == "at-risk"


def test_several_assertions_in_a_row_are_numbered():
    """Each verdict has a number of its own, and knows nothing of the evidence before it."""
    judge = Judge(questions=1)
    exchange = Exchange(2, judge)
    for number in (1, 2, 3):
        for rank in (0, 1):
            exchange.arrive(rank, evidence([number, rank]))
        assert exchange.step(gone=set())[0] == messages.Ask(question=Question(ask="question 0", about=0))
        for rank in (0, 1):
            exchange.answer(rank, [number, rank, "answer"])
        assert exchange.step(gone=set())[0].number == number
    expected = [[[n, r, "answer"] for r in (0, 1)] for n in (1, 2, 3)]
    assert [rounds[0] for _, _, rounds in judge.calls if rounds] == expected
    assert len(exchange.done) == 3


# --- questions


def test_a_question_goes_to_all_and_waits_for_all_answers():
    """A judge's question reaches every rank, and it is called again with all answers in the order of ranks."""
    judge = Judge(questions=1)
    exchange = Exchange(2, judge)
    exchange.arrive(0, evidence("a"))
    exchange.arrive(1, evidence("b"))
    question = messages.Ask(question=Question(ask="question 0", about=0))
    assert exchange.step(gone=set()) == {0: question, 1: question}
    assert silent(exchange)
    exchange.answer(1, "B")
    assert silent(exchange)
    exchange.answer(0, None)
    assert isinstance(exchange.step(gone=set())[1], messages.Verdict)
    assert judge.calls == [("parameter-sync", ["a", "b"], []), ("parameter-sync", ["a", "b"], [[None, "B"]])]


def test_rounds_add_up():
    """A judge that asks on sees the answers to all its questions, round by round."""
    judge = Judge(questions=2)
    exchange = Exchange(1, judge)
    exchange.arrive(0, evidence())
    exchange.step(gone=set())
    exchange.answer(0, "first")
    assert exchange.step(gone=set())[0].question.ask == "question 1"
    exchange.answer(0, "second")
    assert isinstance(exchange.step(gone=set())[0], messages.Verdict)
    assert judge.calls[-1][2] == [["first"], ["second"]]


# --- what explains an error


def explaining(facts=None):
    return replace(evidence(facts), explains=True)


def test_ranks_are_asked_for_what_explains_an_error():
    """The judge is done; what the ranks have kept is asked of all of them, and the verdict comes with their answers."""
    judge = Judge(findings=[finding()])
    exchange = Exchange(2, judge)
    for rank in (0, 1):
        exchange.arrive(rank, explaining())
    asked = messages.Ask(question=Question(ask=messages.EVIDENCE))
    assert exchange.step(gone=set()) == {0: asked, 1: asked}
    exchange.answer(0, b"")
    assert silent(exchange)
    exchange.answer(1, b"")
    sent = exchange.step(gone=set())
    assert [one.found for one in sent[0].findings] == ["something"]
    assert sent[0].findings[0].where.line == 3
    assert len(judge.calls) == 1
    # The next assertion knows nothing of it.
    for rank in (0, 1):
        exchange.arrive(rank, explaining())
    assert exchange.step(gone=set()) == {0: asked, 1: asked}


@pytest.mark.parametrize(
    ("found", "given"),
    [
        ((), (explaining(), explaining())),
        ((finding(severity="warning"),), (explaining(), explaining())),
        ((finding(),), (explaining(), evidence())),
    ],
)
def test_where_there_is_nothing_to_explain_nobody_is_asked(found, given):
    """What holds, what is at risk, and what some rank has no answer to."""
    exchange = Exchange(2, Judge(findings=found))
    for rank, one in enumerate(given):
        exchange.arrive(rank, one)
    assert isinstance(exchange.step(gone=set())[0], messages.Verdict)


# --- asymmetry


def test_a_rank_that_never_calls_is_found_out():
    """An assertion that a rank ended without is a violation for those who wait, and the judge is not asked."""
    judge = Judge()
    exchange = Exchange(3, judge)
    exchange.arrive(0, evidence())
    exchange.arrive(2, evidence(line=5))
    assert silent(exchange)
    sent = exchange.step(gone={1})
    assert sorted(sent) == [0, 2]
    assert judge.calls == []
    (found,) = sent[0].findings
    assert found == Finding(
        check="parameter-sync",
        rule="parameter-sync/unequal-assertion-calls",
        severity="error",
        ranks=(0, 2),
        subject="assert_parameters_identical",
        expected="every rank to call the same assertion",
        found=(
            "rank 0 called assert_parameters_identical (test_x.py:3 in test); "
            "rank 2 called assert_parameters_identical (test_x.py:5 in test); "
            "rank 1 ended the test's body without a call"
        ),
        where=CallSite(file="test_x.py", line=3, function="test"),
        advice=(
            "Call it on every rank: outside of `if ddp.rank == 0:`, and of loops whose length differs between ranks."
        ),
    )
    assert exchange.done[0].status == "violated"


def test_calls_from_one_line_are_told_together():
    """Ranks that wait in the same call are listed once."""
    exchange = Exchange(4, Judge())
    for rank in (1, 2, 3):
        exchange.arrive(rank, evidence())
    found = exchange.step(gone={0})[3].findings[0].found
    assert found == (
        "ranks 1-3 called assert_parameters_identical (test_x.py:3 in test); "
        "rank 0 ended the test's body without a call"
    )


def test_nobody_is_found_out_while_a_rank_may_still_come():
    """A rank that is neither here nor gone keeps the others waiting."""
    exchange = Exchange(3, Judge())
    exchange.arrive(0, evidence())
    assert silent(exchange, gone={1})
    exchange.arrive(2, evidence())
    assert sorted(exchange.step(gone={1})) == [0, 2]


@pytest.mark.parametrize(
    "other",
    [evidence(title="assert_replicas_identical"), evidence(check="gradient-sync", title="assert_gradients_identical")],
    ids=["title", "check"],
)
def test_different_assertions_do_not_meet(other):
    """Ranks in different assertions all get a violation that names both calls."""
    judge = Judge()
    exchange = Exchange(2, judge)
    exchange.arrive(0, evidence())
    exchange.arrive(1, other)
    sent = exchange.step(gone=set())
    assert sent[0] is sent[1]
    (found,) = sent[0].findings
    assert found.ranks == (0, 1)
    assert found.found == (
        f"rank 0 called assert_parameters_identical (test_x.py:3 in test); rank 1 called {other.title} "
        "(test_x.py:3 in test)"
    )
    assert judge.calls == []


def test_one_assertion_from_two_lines_is_the_same():
    """What counts is the assertion, not the line: branches may each have their call."""
    exchange = Exchange(2, Judge())
    exchange.arrive(0, evidence(line=3))
    exchange.arrive(1, evidence(line=30))
    assert exchange.step(gone=set())[0].findings == ()


def test_an_asymmetry_is_over_when_it_is_told():
    """After a violation of symmetry the next assertion begins anew."""
    exchange = Exchange(2, Judge())
    exchange.arrive(0, evidence())
    exchange.step(gone={1})
    assert exchange.waiting == {}
    exchange.arrive(0, evidence(title="assert_replicas_identical"))
    assert exchange.step(gone={1})[0].number == 2


# --- any order


class Rank:
    """A rank with assertions to make: it arrives, answers what it is asked, and goes on after a verdict."""

    def __init__(self, number, assertions):
        self.number, self.left = number, list(assertions)
        self.ready, self.asked, self.verdicts = True, None, []

    @property
    def can_move(self):
        return self.asked is not None or (self.ready and bool(self.left))

    def move(self, exchange):
        if self.asked is not None:
            exchange.answer(self.number, [self.number, self.asked.about])
            self.asked = None
        else:
            self.ready = False
            title = self.left.pop(0)
            exchange.arrive(self.number, evidence(self.number, title=title))

    def take(self, message):
        if isinstance(message, messages.Ask):
            self.asked = message.question
        else:
            self.verdicts.append((message.number, message.findings))
            self.ready = True


def play(orders, pick):
    """Run ranks with these assertions to the end; ``pick`` chooses who moves next."""

    def judge(check, facts, rounds):
        if len(rounds) < 2:
            return Question(ask="more", about=len(rounds))
        return (finding(f"{facts} {rounds}"),)

    exchange = Exchange(len(orders), judge)
    ranks = [Rank(number, order) for number, order in enumerate(orders)]
    while movers := [r for r in ranks if r.can_move]:
        pick(movers).move(exchange)
        gone = {r.number for r in ranks if r.ready and not r.left}
        for number, message in exchange.step(gone).items():
            ranks[number].take(message)
    return [r.verdicts for r in ranks]


titles = st.lists(st.sampled_from(["a", "b"]), max_size=3)
programs = st.lists(titles, min_size=1, max_size=4) | st.tuples(titles, st.integers(1, 4)).map(lambda t: [t[0]] * t[1])


@settings(deadline=None, database=None, max_examples=150)
@given(programs, st.data())
def test_the_order_of_arrivals_changes_no_verdict(orders, data):
    """However arrivals and answers interleave, each rank gets the same findings, and none waits for ever."""
    straight = play(orders, lambda movers: movers[0])
    mixed = play(orders, lambda movers: movers[data.draw(st.integers(0, len(movers) - 1))])
    assert mixed == straight
    assert [len(verdicts) for verdicts in mixed] == [len(order) for order in orders]


@settings(deadline=None, database=None, max_examples=50)
@given(titles, st.integers(1, 4), st.data())
def test_ranks_in_the_same_assertions_get_the_same_verdicts(order, world_size, data):
    """Where all ranks make the same assertions, all get the same numbers and findings, from everyone's evidence."""
    verdicts = play([order] * world_size, lambda movers: movers[data.draw(st.integers(0, len(movers) - 1))])
    everyone = list(range(world_size))
    rounds = [[[rank, number] for rank in everyone] for number in (0, 1)]
    assert all(one == verdicts[0] for one in verdicts)
    assert [number for number, _ in verdicts[0]] == list(range(1, len(order) + 1))
    assert all(found.found == f"{everyone} {rounds}" for _, (found,) in verdicts[0])


# --- what facts rest on


def groundless(facts=None, stuck=False):
    given = evidence(facts)
    return replace(given, unjudgeable="torch 2.99.0 has no backward, on which this check rests", stuck=stuck)


def test_what_rests_on_something_missing_is_not_judged():
    """On whichever rank: all get the reason, as a warning, and nothing is held or violated."""
    judge = Judge(findings=[finding()])
    exchange = Exchange(3, judge)
    exchange.arrive(0, evidence())
    exchange.arrive(1, groundless())
    exchange.arrive(2, groundless())
    sent = exchange.step(gone=set())
    assert judge.calls == []
    assert [run.status for run in exchange.done] == ["not-checked"]
    (told,) = sent[0].findings
    assert sent[0] == sent[1] == sent[2]
    assert (told.severity, told.ranks) == ("warning", (1, 2))
    assert told.found == "torch 2.99.0 has no backward, on which this check rests"


def test_a_call_that_raised_is_told_all_the_same():
    """That needs no more than the call itself."""
    exchange = Exchange(2, Judge(findings=[finding("it raised")]))
    exchange.arrive(0, groundless(stuck=True))
    exchange.arrive(1, groundless())
    assert exchange.step(gone=set())[0].findings[0].found == "it raised"


# --- a rank that cannot go on


def stuck(facts="stuck"):
    where = CallSite(file="test_x.py", line=9, function="test")
    return messages.Evidence(check="c", title="assert_c", where=where, facts=facts, stuck=True)


def test_a_rank_that_cannot_go_on_is_judged_without_the_others(monkeypatch):
    """Others may wait for it in a collective: after a moment it is judged by who came, None in the others' places."""
    now = 100.0
    monkeypatch.setattr(clock, "now", lambda: now)
    judge = Judge(findings=[finding()])
    exchange = Exchange(3, judge)
    exchange.arrive(1, stuck())
    assert exchange.until == now + STUCK_PATIENCE
    assert silent(exchange)
    now += STUCK_PATIENCE
    sent = exchange.step(gone=set())
    assert list(sent) == [1]
    assert sent[1].violated
    assert sent[1].findings[0].where.line == 9
    assert judge.calls == [("c", [None, "stuck", None], [])]
    assert exchange.until is None


def test_those_who_come_in_time_share_its_verdict(monkeypatch):
    """All that have come get the verdict; where all have, at once, and with everybody's evidence."""
    now = 100.0
    monkeypatch.setattr(clock, "now", lambda: now)
    judge = Judge(findings=[finding()])
    exchange = Exchange(2, judge)
    exchange.arrive(0, stuck("first"))
    exchange.arrive(1, stuck("second"))
    assert sorted(exchange.step(gone=set())) == [0, 1]
    assert judge.calls == [("c", ["first", "second"], [])]
    assert silent(exchange)


def test_evidence_on_something_else_is_not_judged_with_it(monkeypatch):
    """A rank that waits in another assertion gets the verdict too, and its facts stay out of it."""
    now = 100.0
    monkeypatch.setattr(clock, "now", lambda: now)
    judge = Judge(findings=[finding()])
    exchange = Exchange(3, judge)
    exchange.arrive(0, evidence("other"))
    exchange.arrive(2, stuck())
    now += STUCK_PATIENCE
    assert sorted(exchange.step(gone=set())) == [0, 2]
    assert judge.calls == [("c", [None, None, "stuck"], [])]


def test_a_rank_that_has_left_is_not_waited_for():
    """Where the others have ended their bodies, there is nobody to give a moment to."""
    judge = Judge(findings=[finding()])
    exchange = Exchange(2, judge)
    exchange.arrive(0, stuck())
    assert list(exchange.step(gone={1})) == [0]
