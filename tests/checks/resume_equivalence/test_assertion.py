"""The judge of resumes, over evidence written by hand."""

from __future__ import annotations

from ddpcheck.checks.resume_equivalence.assertion import ADVICE
from ddpcheck.evidence.training_state import Resumed, Value
from tests.judging.checkpoint_facts import judged, weight


def resumed(**changes: object) -> Resumed:
    same = {
        "w": weight("a1"),
        "opt.lr": Value(kind="optimizer", shown="0.1"),
        "random state of torch": Value(kind="random", digest="r1"),
    }
    later = {**same, "w": weight("a2"), "random state of torch": Value(kind="random", digest="r2")}
    facts = {"steps": 3, "saved": same, "loaded": same, "went_on": later, "resumed": later,
             "batches_went_on": ("p", "q", "r"), "batches_resumed": ("p", "q", "r")}  # fmt: skip
    return Resumed(**(facts | changes))  # type: ignore[arg-type]


def test_the_same_after_a_resume() -> None:
    """Equal in everything is held."""
    assert judged("resume-equivalence", resumed(), resumed()) == ()


def test_a_difference_after_the_steps_alone() -> None:
    """All was restored as far as can be seen, and yet the steps differ."""
    one = resumed()
    (finding,) = judged("resume-equivalence", resumed(resumed={**one.resumed, "w": weight("z")}), one)
    assert finding.ranks == (0,)
    assert "something else has to be saved" in finding.cause


def test_what_was_not_restored_comes_first() -> None:
    """Of several differences, the one that was there right after the load is the cause."""
    one = resumed()
    worse = resumed(
        loaded={**one.loaded, "opt.lr": Value(kind="optimizer", shown="0.5")},
        resumed={**one.resumed, "w": weight("z"), "opt.lr": Value(kind="optimizer", shown="0.5")},
    )
    (finding,) = judged("resume-equivalence", worse, worse)
    assert (finding.subject, finding.count) == ("opt.lr", 2)
    assert finding.advice == ADVICE["optimizer"]
    assert "not restored by the load: opt.lr" in finding.cause


def test_another_batch() -> None:
    """The first step with another batch is told; also where a resumed training has fewer."""
    (finding,) = judged("resume-equivalence", resumed(batches_resumed=("p", "x", "y")))
    assert "another batch from step 2 after the load on" in finding.found
    (finding,) = judged("resume-equivalence", resumed(batches_resumed=("p",)))
    assert "from step 2" in finding.found
    assert finding.advice == ADVICE["batches"]


def test_one_ranks_stream_everywhere() -> None:
    """All ranks hold what one of them has saved."""
    name = "random state of torch"
    facts = []
    for rank in range(2):
        saved = {name: Value(kind="random", digest=f"s{rank}")}
        loaded = {name: Value(kind="random", digest="s0")}
        on = {name: Value(kind="random", digest=f"t{rank}")}
        facts.append(
            Resumed(steps=1, saved=saved, loaded=loaded, went_on=on, resumed={name: Value(kind="random", digest="t0")})
        )
    (finding,) = judged("resume-equivalence", *facts)
    assert finding.ranks == (1,)
    assert "one rank's state was restored on every rank" in finding.cause


def test_idle_and_ignored_are_not_compared() -> None:
    """A stream that no step moves, and what the caller has named, may differ."""
    one = resumed()
    other = {**one.resumed, "random state of torch": Value(kind="random", digest="zz")}
    assert judged("resume-equivalence", resumed(resumed=other, idle=frozenset({"random state of torch"}))) == ()
    assert judged("resume-equivalence", resumed(resumed=other, ignored=frozenset({"random state of torch"}))) == ()
    below = {**one.resumed, "stats.count": Value(kind="counter", shown="2")}
    assert judged("resume-equivalence", resumed(resumed=below, ignored=frozenset({"stats"}))) == ()
    assert len(judged("resume-equivalence", resumed(resumed=below, ignored=frozenset({"stat"})))) == 1
