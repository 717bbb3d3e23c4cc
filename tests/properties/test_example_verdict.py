"""From the ends of an example in all ranks to one verdict, over ends written by hand."""

from __future__ import annotations

import signal

import pytest

from ddpcheck.properties.example_verdict import verdict_of_ends, verdict_of_run
from ddpcheck.vocabulary.model import CallSite, ExampleEnd, Origin, PhaseReport, RankEnding
from tests.outcomes.test_test_outcome import record

TEST = CallSite(file="/project/test_x.py", line=5, function="test_x")
STACK = f"""Current thread 0x00007f0000000000 (most recent call first):
  File "{pytest.__file__}", line 12 in wait
  File "/project/train.py", line 40 in loop
  File "/project/test_x.py", line 9 in test_x"""


def at(line):
    return CallSite(file="/project/test_x.py", line=line, function="test_x")


def origin(line, name="ValueError"):
    return Origin(module="builtins", name=name, where=at(line))


def end(status="passed", when=1.0, line=None, **more):
    where = at(line) if line else None
    known = origin(line) if status == "failed" else None
    return ExampleEnd(status=status, at=when, where=where, origin=known, text=f"{status} at {line}", **more)


def rank(number, example=None, kind="finished", when=1.0, **more):
    return RankEnding(rank=number, kind=kind, at=when, example=example, **more)


def judged(*endings, known=()):
    return verdict_of_run(record(*endings, timeout=1.0), TEST, known)


# --- where no rank has failed


@pytest.mark.parametrize("status", ["passed", "invalid", "stopped", "skipped"])
def test_all_alike(status):
    """What all ranks say is the verdict, with the first rank's reason and line."""
    verdict = verdict_of_ends({0: end(status, line=7), 1: end(status, line=8)}, TEST)
    assert (verdict.kind, verdict.where) == (status, at(7))


@pytest.mark.parametrize(("status", "does"), [("invalid", "rejected the example"), ("skipped", "skipped")])
def test_some_rejected(status, does):
    """An example that some ranks reject is a failure, at the line of those that do."""
    verdict = verdict_of_ends({0: end(), 1: end(status, line=7), 2: end()}, TEST)
    assert verdict.kind == "failed"
    assert f"ranks 0 and 2 went on to the end; rank 1 {does} ({at(7)})" in verdict.text
    assert verdict.origin.where == at(7)
    assert verdict.origin.name == "RanksDisagree"


# --- failures


def test_the_first_failure_by_the_clock():
    verdict = judged(rank(0, end("failed", 2.0, 10)), rank(1, end("failed", 1.0, 11)))
    assert (verdict.kind, verdict.origin) == ("failed", origin(11))


def test_a_failure_of_its_own_counts_before_a_lost_peer():
    verdict = judged(rank(0, end("failed", 1.0, 10, reaction=True)), rank(1, end("failed", 2.0, 11)))
    assert verdict.origin == origin(11)


def test_a_known_failure_counts_before_an_unknown_one():
    """Ranks that fail independently do so in any order: the same example is to be the same failure every time."""
    endings = rank(0, end("failed", 2.0, 10)), rank(1, end("failed", 1.0, 11))
    assert judged(*endings, known=[origin(10)]).origin == origin(10)
    assert judged(*endings, known=[origin(10), origin(11)]).origin == origin(10)
    assert judged(*endings, known=[origin(11), origin(10)]).origin == origin(11)


def test_a_known_reaction_does_not_count_before_a_failure():
    endings = rank(0, end("failed", 1.0, 10, reaction=True)), rank(1, end("failed", 2.0, 11))
    assert judged(*endings, known=[origin(10)]).origin == origin(11)


@pytest.mark.parametrize(
    ("more", "name", "text"),
    [
        ({"signal": signal.SIGSEGV, "stack": STACK}, "RankDied (SIGSEGV)", "rank 1 was killed by SIGSEGV"),
        ({"exit_code": 3}, "RankDied (code 3)", "rank 1 left with exit code 3"),
    ],
)
def test_a_death(more, name, text):
    """A death is a failure at the line of the rank's stack, else at the test."""
    verdict = judged(rank(0, end("failed", 0.5, 10, reaction=True)), rank(1, None, "died", **more))
    assert (verdict.kind, verdict.origin.name) == ("failed", name)
    assert verdict.text.startswith(text)
    where = CallSite(file="/project/train.py", line=40, function="loop") if "stack" in more else TEST
    assert verdict.origin.where == where


def test_a_death_between_two_examples_says_so():
    assert "between two examples" in judged(rank(0), rank(1, None, "died", exit_code=3, body_ended=True)).text


def test_a_hang():
    """A hang is a failure at the line of the user's where the first rank that hangs is."""
    verdict = judged(rank(0, end(), "stopped"), rank(1, None, "hung", stack=STACK))
    assert verdict.text == "timed out after 1 s with rank 1 still running"
    assert verdict.origin.where == CallSite(file="/project/train.py", line=40, function="loop")


def test_a_hang_is_where_nobody_waits_for_the_others():
    verdict = judged(rank(0, None, "hung", waiting_in="a draw at x"), rank(1, None, "hung", stack=STACK))
    assert verdict.origin.where.line == 40


def test_a_hang_after_a_rejection():
    """A rank that rejects what the others wait in is the cause."""
    verdict = judged(rank(0, None, "hung", stack=STACK), rank(1, end("invalid", line=7), "stopped"))
    assert "rank 1 rejected the example" in verdict.text
    assert "rank 0 went on, and waited until the deadline" in verdict.text
    assert verdict.origin.name == "RanksDisagree"


# --- what is no matter of the example


def setup_of(outcome):
    return (PhaseReport(phase="setup", outcome=outcome, at=0.5, data={}),)


@pytest.mark.parametrize(
    "ending",
    [
        rank(1, None, "never-started"),
        rank(1, None, "exit", text="enough"),
        rank(1, None, reports=setup_of("failed")),
        rank(1, None, reports=setup_of("skipped")),
        rank(1, None),
    ],
)
def test_the_test_has_failed(ending):
    """A rank that did not start, whose fixtures failed, or that left, ends the property."""
    assert judged(rank(0, end()), ending).kind == "over"


def test_ranks_that_ended_with_a_passing_example():
    assert judged(rank(0, end()), rank(1, end())).kind == "passed"
