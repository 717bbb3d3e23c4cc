"""From the endings of all ranks to one outcome, over records written by hand."""

from __future__ import annotations

import re
import signal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ddpcheck.outcomes.test_outcome import Note, crash_message, decide, skip_reason, xfailed
from ddpcheck.vocabulary.model import PhaseReport, Plan, Raised, RankEnding, RunRecord, never_started

PHASES = ("setup", "call", "teardown")

# --- records


def record(*endings, timeout=60.0):
    plan = Plan(
        nodeid="test_x.py::test",
        path="test_x.py",
        world_size=len(endings),
        backend="gloo",
        device="cpu",
        timeout=timeout,
        shared_dir="shared",
        own_dirs="own",
        capture="fd",
    )
    return RunRecord(plan=plan, endings=endings)


def passes(*phases, at=0.5):
    return tuple(PhaseReport(phase=phase, outcome="passed", at=at, data={}) for phase in phases)


def fails(message="assert 1 == 2", phase="call", at=1.0, **more):
    """The reports of a rank that failed in ``phase``."""
    data = {"longrepr": {"reprcrash": {"message": message}}}
    report = PhaseReport(phase=phase, outcome="failed", at=at, data=data, **more)
    return (*passes(*_before(phase)), report)


def skips(reason="no data", phase="call", at=1.0):
    data = {"longrepr": ["test_x.py", 3, f"Skipped: {reason}"]}
    return (*passes(*_before(phase)), PhaseReport(phase=phase, outcome="skipped", at=at, data=data))


def xfails(message="ValueError", at=1.0):
    data = {"wasxfail": "known", "longrepr": {"reprcrash": {"message": message}}}
    return (*passes("setup"), PhaseReport(phase="call", outcome="skipped", at=at, data=data))


def _before(phase):
    return PHASES[: PHASES.index(phase)]


def finished(rank, reports=None, **more):
    reports = passes("setup", "call", "teardown") if reports is None else reports
    body_ended = all(r.outcome == "passed" for r in reports if r.phase != "teardown")
    return RankEnding(rank=rank, kind="finished", at=2.0, reports=reports, body_ended=body_ended, **more)


def died(rank, at=2.0, reports=None, **more):
    reports = passes("setup") if reports is None else reports
    more = more or {"signal": int(signal.SIGKILL)}
    return RankEnding(rank=rank, kind="died", at=at, reports=reports, **more)


def hung(rank, reports=None, **more):
    reports = passes("setup") if reports is None else reports
    return RankEnding(rank=rank, kind="hung", at=60.0, reports=reports, **more)


def stopped(rank, reports=None, **more):
    reports = passes("setup") if reports is None else reports
    return RankEnding(rank=rank, kind="stopped", at=3.0, reports=reports, **more)


def unstarted(rank, text="OSError: no store", at=1.0, **more):
    return RankEnding(rank=rank, kind="never-started", at=at, text=text, **more)


def leaves(rank, text="enough", at=1.0):
    return RankEnding(rank=rank, kind="exit", at=at, text=text)


def note(outcome, rank):
    (found,) = [n for n in outcome.notes if n.rank == rank]
    return found


# --- passed


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_every_rank_passed(world_size):
    """A test passes where every rank went through all phases."""
    outcome = decide(record(*map(finished, range(world_size))))
    assert (outcome.result, outcome.root, outcome.notes) == ("passed", 0, ())


# --- a rank raised


def test_the_rank_that_raised_is_the_root():
    """A failure in one rank fails the test with that rank's report, and the others as consequences."""
    outcome = decide(record(stopped(0), finished(1, fails("assert 0")), finished(2)))
    assert (outcome.result, outcome.phase, outcome.root) == ("failed", "call", 1)
    assert outcome.headline == "rank 1 failed first (of 3 ranks, gloo on cpu)"
    assert crash_message(outcome.report) == "assert 0"
    assert outcome.notes == (
        Note(rank=0, text="was still running, and was stopped"),
        Note(rank=2, text="passed"),
    )


def test_one_rank_is_spoken_of_in_the_singular():
    """The headline of a test with one rank says "1 rank"."""
    assert decide(record(finished(0, fails()))).headline == "rank 0 failed first (of 1 rank, gloo on cpu)"


@pytest.mark.parametrize("phase", PHASES)
def test_the_phase_is_that_of_the_failure(phase):
    """A failure in a fixture is one of setup or teardown, as with pytest."""
    assert decide(record(finished(0), finished(1, fails(phase=phase)))).phase == phase


def test_the_earliest_failure_wins():
    """Failures are ordered by the clock, not by rank."""
    outcome = decide(record(finished(0, fails(at=2.0)), finished(1, fails(at=1.0)), finished(2, fails(at=3.0))))
    assert outcome.root == 1
    assert [n.text for n in outcome.notes] == ["failed in call: assert 1 == 2"] * 2


def test_of_failures_at_one_moment_the_lowest_rank_wins():
    """A tie goes to the lowest rank, so that the report is the same every time."""
    assert decide(record(finished(0), finished(1, fails()), finished(2, fails()))).root == 1


def test_the_first_failure_of_a_rank_stands_for_it():
    """A rank that failed in its call and again in its teardown is judged by its call."""
    both = (*fails("first", at=1.0), *fails("second", phase="teardown", at=0.1)[2:])
    outcome = decide(record(finished(0, both), finished(1, fails("later", at=2.0))))
    assert (outcome.root, outcome.phase) == (0, "call")
    assert crash_message(outcome.report) == "first"


def test_a_failure_of_its_own_beats_an_earlier_reaction():
    """The loss of a peer is a consequence where another rank failed by itself, even later."""
    lost = fails("Connection closed by peer", at=1.0, reaction=True)
    outcome = decide(record(finished(0, lost), finished(1, fails("assert 0", at=2.0))))
    assert outcome.root == 1
    assert note(outcome, 0).text == "lost its peer: Connection closed by peer"


def test_a_reaction_is_the_root_where_nothing_else_failed():
    """With reactions alone, the earliest is shown."""
    late, early = fails(at=2.0, reaction=True), fails(at=1.0, reaction=True)
    outcome = decide(record(finished(0, late), finished(1, early), stopped(2)))
    assert (outcome.result, outcome.root) == ("failed", 1)


def test_leaving_by_system_exit_is_said():
    """A SystemExit is reported as such: pytest's own report does not say that the test had left."""
    outcome = decide(record(finished(0), finished(1, fails("SystemExit: 0"))))
    assert outcome.headline == "rank 1 failed first: it left the test by SystemExit (of 2 ranks, gloo on cpu)"


def test_a_shared_verdict_is_told_once():
    """Ranks that raised the verdict of one assertion are named in the headline, and in no note."""
    outcome = decide(
        record(
            finished(0, fails(verdict=2, at=1.0)),
            finished(1, fails(verdict=2, at=1.0)),
            finished(2, fails("other", verdict=1, at=9.0)),
        )
    )
    assert outcome.headline == (
        "rank 0 failed first, with a verdict that ranks 0 and 1 share (of 3 ranks, gloo on cpu)"
    )
    assert [n.rank for n in outcome.notes] == [2]


def test_a_verdict_of_all_ranks_needs_no_numbers():
    """A verdict that every rank raised is said to be that of all."""
    outcome = decide(record(*[finished(rank, fails(verdict=1)) for rank in range(3)]))
    assert outcome.headline == "rank 0 failed first, with a verdict that all ranks share (of 3 ranks, gloo on cpu)"
    assert outcome.notes == ()


def test_a_verdict_is_shared_with_a_rank_that_was_stopped_before_it_could_report():
    """Whoever was given the verdict shares it, unless it went on from there."""
    given = stopped(1, verdict=1)
    outcome = decide(record(finished(0, fails(verdict=1)), given, finished(2, verdict=1)))
    assert outcome.headline.startswith("rank 0 failed first, with a verdict that ranks 0 and 1 share")
    assert [n.rank for n in outcome.notes] == [2]


def test_a_verdict_of_one_rank_is_nobody_elses():
    """A verdict that one rank alone raised is not said to be shared."""
    outcome = decide(record(finished(0, fails(verdict=1)), finished(1)))
    assert outcome.headline == "rank 0 failed first (of 2 ranks, gloo on cpu)"


def test_a_rank_that_raised_but_could_not_report_is_the_root():
    """The first word of a failure counts where its traceback never came."""
    raised = Raised(phase="call", at=1.0, text="ValueError: bad", reaction=False)
    outcome = decide(record(finished(0, fails(at=2.0)), stopped(1, raised=raised, stack="File a.py")))
    assert (outcome.result, outcome.phase, outcome.root, outcome.report) == ("failed", "call", 1, None)
    assert outcome.headline == (
        "rank 1 failed first, and was ended before it had reported: ValueError: bad (of 2 ranks, gloo on cpu)"
    )
    assert outcome.details == "File a.py"


def test_a_reaction_that_could_not_be_reported_is_still_a_reaction():
    """A rank that was stopped while it told of a lost peer does not hide the peer's failure."""
    raised = Raised(phase="setup", at=1.0, text="RuntimeError: Broken pipe", reaction=True)
    outcome = decide(record(stopped(0, reports=(), raised=raised), finished(1, fails(at=2.0))))
    assert outcome.root == 1
    assert note(outcome, 0).text == "lost its peer: RuntimeError: Broken pipe"


def test_a_report_that_came_outweighs_the_first_word():
    """An error that its report tells as a skip is no failure: pytest has judged it."""
    raised = Raised(phase="call", at=1.0, text="unittest.case.SkipTest: no data", reaction=False)
    outcome = decide(record(finished(0, skips(), raised=raised), finished(1)))
    assert outcome.headline == "rank 0 skipped and rank 1 did not (rank 0: no data)"


def test_a_failure_that_a_plugin_forgives_is_none():
    """An error that the phase's report tells as passed is no failure either."""
    raised = Raised(phase="call", at=1.0, text="ValueError", reaction=False)
    assert decide(record(finished(0, raised=raised), finished(1))).result == "passed"


# --- xfail


def test_a_strict_unexpected_pass_fails_where_no_rank_failed():
    """A strict xfail that passed everywhere is a failure."""
    strict = fails("[XPASS(strict)] ", unexpected_pass=True)
    outcome = decide(record(finished(0, strict), finished(1, strict)))
    assert (outcome.result, outcome.root) == ("failed", 0)


@pytest.mark.parametrize("reaction", [False, True])
def test_a_strict_unexpected_pass_counts_only_where_no_rank_failed(reaction):
    """An expected failure in one rank stands, though another rank passed unexpectedly and earlier."""
    strict = fails("[XPASS(strict)] ", at=1.0, unexpected_pass=True)
    outcome = decide(record(finished(0, strict), finished(1, fails("real", at=2.0, reaction=reaction))))
    assert outcome.root == 1


def test_an_expected_failure_is_judged_on_the_first_rank_to_fail():
    """The report of a test marked xfail is that of the rank that failed first, expected or not."""
    expected_first = decide(record(finished(0, xfails(at=1.0)), finished(1, fails("other", at=2.0))))
    assert (expected_first.root, xfailed(expected_first.report)) == (0, True)
    other_first = decide(record(finished(0, xfails(at=2.0)), finished(1, fails("other", at=1.0))))
    assert (other_first.root, xfailed(other_first.report)) == (1, False)


def test_an_expected_failure_is_no_skip():
    """A rank that failed as expected did not skip, though pytest reports both as skipped."""
    outcome = decide(record(finished(0, xfails()), finished(1)))
    assert outcome.headline == "rank 0 failed first (of 2 ranks, gloo on cpu)"


TORN = (*xfails(at=1.0), *fails("disk full", phase="teardown", at=3.0)[2:])


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (finished(0, TORN), "rank 0 failed first ("),
        (died(0, reports=xfails(at=1.0)), "rank 0 failed first: it was killed by SIGKILL after the test's body ended"),
        (hung(0, xfails(at=1.0)), "timed out after 60 s with rank 0 still running"),
    ],
)
@pytest.mark.parametrize("peer", [0.5, 2.0])
def test_an_expected_failure_does_not_hide_what_the_same_rank_does_then(ending, words, peer):
    """A teardown that raises, crashes or hangs after an expected failure fails, as with pytest."""
    raised = Raised(phase="call", at=1.0, text="XFailed: known", reaction=False)
    outcome = decide(record(replace(ending, raised=raised), finished(1, xfails(at=peer))))
    assert (outcome.result, outcome.phase, outcome.root) == ("failed", "teardown", 0)
    assert outcome.headline.startswith(words)
    assert outcome.report is None or not xfailed(outcome.report)


@pytest.mark.parametrize("how", [finished, stopped])
def test_what_follows_from_an_expected_failure_is_no_other(how):
    """A rank that lost its peer in its teardown, or was ended there for another's sake, has failed as expected."""
    lost = fails("lost", phase="teardown", at=3.0, reaction=True)[2:] if how is finished else ()
    outcome = decide(record(how(0, (*xfails(at=1.0), *lost)), finished(1)))
    assert xfailed(outcome.report)


# --- a rank died


def test_a_death_by_signal_is_named():
    """A rank that died by a signal is the root, with the signal's name and its last stack."""
    outcome = decide(record(stopped(0), died(1, signal=int(signal.SIGSEGV), stack="File b.py")))
    assert (outcome.result, outcome.phase, outcome.root, outcome.report) == ("failed", "call", 1, None)
    assert outcome.headline == (
        "rank 1 failed first: it was killed by SIGSEGV before the test's body ended (of 2 ranks, gloo on cpu)"
    )
    assert outcome.details == "The Python stack of rank 1 at that moment:\nFile b.py"


@pytest.mark.parametrize("code", [0, 1, 70])
def test_leaving_early_fails_with_the_code(code):
    """A rank that left before its body ended fails the test, whatever the exit code."""
    outcome = decide(record(finished(0), died(1, exit_code=code)))
    assert outcome.result == "failed"
    assert outcome.headline == (
        f"rank 1 failed first: it left with exit code {code} before the test's body ended (of 2 ranks, gloo on cpu)"
    )
    assert outcome.details == ""


@pytest.mark.parametrize(
    ("phases", "body_ended", "phase", "when"),
    [
        ((), False, "setup", "before"),
        (("setup",), False, "call", "before"),
        (("setup", "call"), True, "teardown", "after"),
        (("setup", "call", "teardown"), True, "teardown", "after"),
    ],
)
def test_a_death_belongs_to_the_phase_that_had_begun(phases, body_ended, phase, when):
    """The phase of a death is the one after the last report."""
    outcome = decide(record(finished(0), died(1, reports=passes(*phases), body_ended=body_ended, signal=9)))
    assert outcome.phase == phase
    assert f"{when} the test's body ended" in outcome.headline


def test_a_death_beats_an_earlier_reaction():
    """A peer's broken connection may arrive before the death that broke it is seen."""
    lost = fails("Broken pipe", at=1.0, reaction=True)
    outcome = decide(record(finished(0, lost), died(1, at=2.0)))
    assert outcome.root == 1


def test_a_failure_before_a_death_wins():
    """Deaths and failures are ordered by one clock."""
    outcome = decide(record(finished(0, fails(at=1.0)), died(1, at=2.0)))
    assert outcome.root == 0
    assert note(outcome, 1).text == "was killed by SIGKILL before the test's body ended"


def test_a_rank_that_failed_and_then_died_is_judged_by_its_failure():
    """A report counts more than what became of the process after it."""
    outcome = decide(record(finished(0), died(1, at=2.0, reports=fails("assert 0", at=1.0))))
    assert crash_message(outcome.report) == "assert 0"


# --- skips


def test_a_test_that_all_ranks_skip_is_skipped():
    """A skip in every rank is a skip of the test, with rank 0's report."""
    outcome = decide(record(finished(0, skips(phase="setup")), finished(1, skips(phase="setup"))))
    assert (outcome.result, outcome.phase, outcome.root) == ("skipped", "setup", 0)
    assert skip_reason(outcome.report) == "no data"
    assert outcome.notes == ()


def test_different_reasons_to_skip_are_all_told():
    """Ranks that skip for different reasons have each reason noted."""
    outcome = decide(record(finished(0, skips("a")), finished(1, skips("b"))))
    assert outcome.result == "skipped"
    assert [n.text for n in outcome.notes] == ["skipped: a", "skipped: b"]


def test_a_test_that_some_ranks_skip_fails():
    """A skip in some ranks fails the test, and says which ranks skipped, and why."""
    outcome = decide(record(finished(0), finished(1, skips("a")), finished(2), finished(3, skips("b"))))
    assert (outcome.result, outcome.root, outcome.report) == ("failed", 1, None)
    assert outcome.headline == "ranks 1 and 3 skipped and ranks 0 and 2 did not (rank 1: a; rank 3: b)"
    assert "by all of its ranks or by none" in outcome.details
    assert [n.rank for n in outcome.notes] == [0, 1, 2, 3]


def test_a_partial_skip_outweighs_the_reactions_to_it():
    """A rank that lost its peer to a skip is a consequence of the skip."""
    lost = fails("Connection closed", reaction=True)
    outcome = decide(record(finished(0, skips()), finished(1, lost)))
    assert outcome.headline.startswith("rank 0 skipped and rank 1 did not")
    assert note(outcome, 1).text == "lost its peer: Connection closed"


def test_a_partial_skip_outweighs_an_unexpected_pass():
    """A strict xfail that passed where another rank skipped is first of all a partial skip."""
    strict = fails("[XPASS(strict)] ", unexpected_pass=True)
    assert decide(record(finished(0, strict), finished(1, skips()))).headline.startswith("rank 1 skipped")


def test_a_failure_outweighs_a_partial_skip():
    """Where one rank failed by itself, the others' skip is noted."""
    outcome = decide(record(finished(0, skips(at=1.0)), finished(1, fails(at=2.0))))
    assert outcome.headline.startswith("rank 1 failed first")
    assert note(outcome, 0).text == "skipped: no data"


def test_a_hang_after_a_partial_skip_is_told_with_the_skip():
    """A test that hangs because one rank skipped shows the hang, and the skip's reason."""
    outcome = decide(record(finished(0, skips()), hung(1)))
    assert outcome.headline.startswith("timed out after 60 s with rank 1 still running")
    assert note(outcome, 0).text == "skipped: no data"


def test_a_skip_everywhere_does_not_hide_a_failing_teardown():
    """A fixture that fails after a skip is an error, as with pytest."""
    torn = (*skips(), *fails("disk full", phase="teardown", at=2.0)[2:])
    outcome = decide(record(finished(0, skips()), finished(1, torn)))
    assert (outcome.result, outcome.phase, outcome.root) == ("failed", "teardown", 1)


def test_a_skip_everywhere_is_no_partial_skip():
    """A reaction in the teardown of a test that all ranks skipped is reported as such."""
    torn = (*skips(), *fails("Connection closed", phase="teardown", at=2.0, reaction=True)[2:])
    outcome = decide(record(finished(0, skips()), finished(1, torn)))
    assert outcome.headline == "rank 1 failed first (of 2 ranks, gloo on cpu)"


def test_a_skip_everywhere_does_not_hide_a_hang():
    """A rank that hangs in a fixture after the skip has timed out."""
    outcome = decide(record(finished(0, skips()), hung(1, reports=skips(), stack="File c.py")))
    assert outcome.result == "failed"
    assert outcome.headline.startswith("timed out after 60 s with rank 1 still running")


def test_a_skip_everywhere_does_not_hide_a_death():
    """A rank that died after the skip did not skip cleanly."""
    outcome = decide(record(finished(0, skips()), died(1, reports=skips())))
    assert (outcome.result, outcome.root) == ("failed", 1)
    assert "SIGKILL" in outcome.headline


# --- the deadline


def test_the_deadline_shows_the_stack_of_every_rank_that_ran():
    """A timeout says so, names the ranks still running, and shows their stacks."""
    waiting = "assert_replicas_identical at a.py:3 in test"
    outcome = decide(
        record(hung(0, stack="File a.py"), finished(1), hung(2, stack="File b.py", waiting_in=waiting), timeout=2.5)
    )
    assert (outcome.result, outcome.phase, outcome.root, outcome.report) == ("failed", "call", 0, None)
    assert outcome.headline == "timed out after 2.5 s with ranks 0 and 2 still running (of 3 ranks, gloo on cpu)"
    assert outcome.details == (
        "rank 0, most recent call first:\nFile a.py\n\n"
        f"rank 2, waiting in {waiting} for the other ranks, most recent call first:\nFile b.py"
    )
    assert outcome.notes == (Note(rank=1, text="passed"),)


def test_a_rank_without_a_stack_is_told_without_one():
    """A rank that could not write its stack is named all the same."""
    details = decide(record(hung(0))).details
    assert details.startswith("rank 0, most recent call first:\n(it gave no stack")


@pytest.mark.parametrize(
    ("phases", "body_ended", "phase"),
    [((), False, "setup"), (("setup",), False, "call"), (("setup", "call"), True, "teardown")],
)
def test_a_hang_belongs_to_the_phase_that_had_begun(phases, body_ended, phase):
    """A hang in a fixture is one of setup or teardown."""
    assert decide(record(hung(0, reports=passes(*phases), body_ended=body_ended))).phase == phase


def test_a_failure_outweighs_a_hang():
    """A rank that failed by itself explains another that then hung."""
    outcome = decide(record(hung(0, stack="File a.py"), finished(1, fails(at=99.0))))
    assert outcome.root == 1
    assert note(outcome, 0) == Note(rank=0, text="was still running, and was stopped", details="File a.py")


# --- ranks that never were


def test_a_rank_that_could_not_start_is_an_error_of_setup():
    """A rank without a process group fails the test's setup, with the reason."""
    outcome = decide(record(stopped(0, reports=()), unstarted(1, "Traceback\nOSError: no store")))
    assert (outcome.result, outcome.phase, outcome.root, outcome.report) == ("failed", "setup", 1, None)
    assert outcome.headline == "rank 1 failed first: it could not start (of 2 ranks, gloo on cpu)"
    assert outcome.details == "Traceback\nOSError: no store"


def test_a_rank_that_could_not_start_for_want_of_another_is_a_consequence():
    """The rank that failed to start by itself comes before those that only missed it."""
    outcome = decide(record(unstarted(0, "timed out", at=1.0, reaction=True), unstarted(1, "no GPU", at=5.0)))
    assert (outcome.root, outcome.details) == (1, "no GPU")
    assert note(outcome, 0).text == "could not start: timed out"


def test_ranks_that_only_missed_each_other_still_fail():
    """Where no rank could start for want of the others, the first is shown."""
    outcome = decide(record(unstarted(0, at=2.0, reaction=True), unstarted(1, at=1.0, reaction=True)))
    assert (outcome.result, outcome.root) == ("failed", 1)


def test_a_reason_for_which_no_rank_was_started_is_said_once():
    """It is no rank's own, and no list of forty ranks follows it."""
    outcome = decide(never_started(record(stopped(0), stopped(1)).plan, "OSError: too many open files"))
    assert outcome.headline == "its ranks could not start (of 2 ranks, gloo on cpu)"
    assert (outcome.details, outcome.notes) == ("OSError: too many open files", ())


def test_the_note_of_a_rank_that_could_not_start_is_its_last_line():
    """Of a long reason, the note has the last line; and an empty reason is no error."""
    outcome = decide(record(unstarted(0, at=1.0), unstarted(1, "Traceback\n  x\nOSError: y\n", at=2.0)))
    assert note(outcome, 1).text == "could not start: OSError: y"
    assert decide(record(unstarted(0, at=1.0), unstarted(1, "", at=2.0))).result == "failed"


# --- pytest.exit


def test_the_first_to_call_exit_ends_the_session():
    """pytest.exit in a rank is one for the session, with the reason of the first."""
    outcome = decide(record(leaves(0, "later", at=2.0), leaves(1, "enough", at=1.0), finished(2, fails())))
    assert (outcome.result, outcome.root) == ("exit", 1)
    assert outcome.headline == "rank 1 called pytest.exit: enough"


# --- notes

OTHERS = {
    "passed": (finished(1), "passed", ""),
    "failed": (finished(1, fails("a\n  b", at=5.0)), "failed in call: a b", ""),
    "failed in a fixture": (finished(1, fails("a", phase="setup", at=5.0)), "failed in setup: a", ""),
    "lost its peer": (finished(1, fails("gone", at=5.0, reaction=True)), "lost its peer: gone", ""),
    "killed": (died(1, at=5.0, signal=9), "was killed by SIGKILL before the test's body ended", ""),
    "left": (died(1, at=5.0, exit_code=3, stack="S"), "left with exit code 3 before the test's body ended", "S"),
    "stopped": (stopped(1, stack="S"), "was still running, and was stopped", "S"),
    "stopped while it waited": (
        stopped(1, stack="S", waiting_in="assert_x at a.py:3 in t"),
        "was waiting in assert_x at a.py:3 in t, and was stopped",
        "",
    ),
    "stopped behind its body": (stopped(1, body_ended=True, stack="S"), "its body had ended", ""),
    "skipped": (finished(1, skips("why")), "skipped: why", ""),
    "never started": (unstarted(1, "a\nb", at=5.0), "could not start: b", ""),
}


@pytest.mark.parametrize(("other", "text", "details"), OTHERS.values(), ids=OTHERS)
def test_what_became_of_the_others_is_told_in_a_clause(other, text, details):
    """A note continues "rank N …" with what happened there, and a stack where there is one."""
    assert decide(record(finished(0, fails(at=1.0)), other)).notes == (Note(rank=1, text=text, details=details),)


@pytest.mark.parametrize(
    ("longrepr", "message"),
    [({"reprcrash": {"message": "E"}}, "E"), ({"reprcrash": None}, ""), ({}, ""), ("text", "text"), (None, "")],
)
def test_a_crash_message_is_found_in_every_kind_of_report(longrepr, message):
    """pytest's reports hold a representation, a text, or nothing."""
    report = PhaseReport(phase="call", outcome="failed", at=0.0, data={"longrepr": longrepr})
    assert crash_message(report) == message


@pytest.mark.parametrize(
    ("longrepr", "reason"),
    [
        (["a.py", 3, "Skipped: no data"], "no data"),
        (("a.py", 3, "Skipped: no data"), "no data"),
        (["a.py", 3, "unconditional skip"], "unconditional skip"),
        ("Skipped: no data", "no data"),
        ("abc", "abc"),
    ],
)
def test_a_reason_to_skip_is_found_in_every_kind_of_report(longrepr, reason):
    """pytest's reports of skips hold a place and a reason, or a text."""
    report = PhaseReport(phase="call", outcome="skipped", at=0.0, data={"longrepr": longrepr})
    assert skip_reason(report) == reason


# --- any combination

# What a rank can do, as functions of its number and of a moment: quicker to draw from than values built part by part.
PROGRESS = [(), passes("setup"), passes("setup", "call")]
FAILED = [
    *(
        lambda at, phase=phase, re=re: fails(phase=phase, at=at, reaction=re)
        for phase in PHASES
        for re in (False, True)
    ),
    lambda at: fails("SystemExit: 1", at=at),
    lambda at: fails(at=at, verdict=1),
    lambda at: fails(at=at, verdict=2),
    lambda at: fails("[XPASS(strict)] ", at=at, unexpected_pass=True),
    lambda at: xfails(at=at),
]
SKIPPED = [
    lambda at: skips("a", at=at),
    lambda at: skips("b", phase="setup", at=at),
    lambda at: (*skips("a", at=at), *passes("teardown")),
    lambda at: (*skips("a", at=at), *fails(phase="teardown", at=at)[2:]),
]
REPORTS = [*(lambda at, done=done: done for done in PROGRESS), *FAILED, *SKIPPED]
FIRST_WORDS = [
    lambda at, phase=phase, re=re: Raised(phase=phase, at=at, text="ValueError", reaction=re)
    for phase in PHASES
    for re in (False, True)
]
ENDINGS = [
    lambda rank, at: finished(rank),
    *(lambda rank, at, r=r: finished(rank, r(at)) for r in FAILED + SKIPPED),
    *(lambda rank, at, r=r: died(rank, at, r(at), signal=9) for r in REPORTS),
    *(lambda rank, at, r=r: hung(rank, r(at), stack="File a.py") for r in REPORTS),
    *(lambda rank, at, r=r: stopped(rank, r(at)) for r in REPORTS),
    *(lambda rank, at, w=w: died(rank, at, (), exit_code=0, raised=w(at)) for w in FIRST_WORDS),
    *(lambda rank, at, w=w: stopped(rank, (), raised=w(at), stack="File b.py") for w in FIRST_WORDS),
    lambda rank, at: hung(rank, PROGRESS[2], body_ended=True),
    lambda rank, at: stopped(rank, waiting_in="assert_x at a.py:1 in t"),
    lambda rank, at: unstarted(rank, "", at),
    lambda rank, at: unstarted(rank, "a\nb", at, reaction=True),
    lambda rank, at: leaves(rank, at=at),
]


def has_cause(ending):
    """Whether this ending gave the supervisor a reason to stop the other ranks."""
    if ending.raised is not None or ending.kind in ("died", "hung", "never-started", "exit"):
        return True
    return any(r.outcome == "failed" or "wasxfail" in r.data for r in ending.reports)


def with_cause(endings):
    if any(e.kind == "stopped" for e in endings) and not any(map(has_cause, endings)):
        return [hung(e.rank, e.reports) if e.kind == "stopped" else e for e in endings]
    return endings


def run_of(choices):
    return record(*with_cause([ENDINGS[which](rank, at) for rank, (which, at) in enumerate(choices)]))


choices = st.tuples(st.integers(0, len(ENDINGS) - 1), st.sampled_from([1.0, 2.0, 3.0]))
records = st.lists(choices, min_size=1, max_size=4).map(run_of)
thorough = settings(deadline=None, database=None, max_examples=200)


def clean(ending):
    return ending.kind == "finished" and all(r.outcome == "passed" for r in ending.reports)


def cleanly_skipped(ending):
    outcomes = [r.outcome for r in ending.reports if r.outcome != "passed"]
    return (
        ending.kind == "finished" and outcomes == ["skipped"] and not any("wasxfail" in r.data for r in ending.reports)
    )


def named(text):
    """The ranks that a text names."""
    found = set()
    for spans in re.findall(r"ranks? (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)", text):
        for span in re.split(", | and ", spans):
            first, _, last = span.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


@thorough
@given(records)
def test_every_combination_has_an_outcome(run):
    """Whatever the ranks did, there is an outcome, and its root is one of them."""
    outcome = decide(run)
    assert outcome.root in range(run.plan.world_size)


@thorough
@given(records)
def test_passed_is_said_of_nothing_else(run):
    """A test has passed exactly where every rank finished with nothing but passed phases."""
    assert (decide(run).result == "passed") == all(map(clean, run.endings))


@thorough
@given(records)
def test_skipped_is_said_of_nothing_else(run):
    """A test is skipped exactly where every rank skipped and then finished."""
    assert (decide(run).result == "skipped") == all(map(cleanly_skipped, run.endings))


@thorough
@given(records)
def test_a_failure_accounts_for_every_rank(run):
    """Of a failed test, each rank is the root, in a note, or named in the headline."""
    outcome = decide(run)
    if outcome.result == "failed":
        everyone = set(range(run.plan.world_size))
        told = {outcome.root} | {n.rank for n in outcome.notes} | named(outcome.headline)
        of_all = "that all ranks share" in outcome.headline or outcome.headline.startswith("its ranks could not start")
        assert told == everyone or of_all
        assert len({n.rank for n in outcome.notes}) == len(outcome.notes)
        assert outcome.headline


def own_failure(ending):
    """The moment of a rank's first failure by itself that its reports show, and whether its mark expected it."""
    for report in ending.reports:
        if report.outcome == "failed" or "wasxfail" in report.data:
            by_itself = not report.reaction and not report.unexpected_pass
            return (report.at, "wasxfail" in report.data) if by_itself else None
    return None


def failure_after_an_expected_one(ending):
    """The moment at which a rank failed by itself after a failure that its mark expected."""
    expected = [n for n, report in enumerate(ending.reports) if "wasxfail" in report.data]
    if not expected:
        return None
    later = [r for r in ending.reports[expected[0] + 1 :] if r.outcome == "failed" and not r.reaction]
    if later:
        return later[0].at
    return ending.at if ending.kind == "died" else None


@thorough
@given(records)
@example(run_of([(11, 1.0), (47, 1.0)]))
@example(run_of([(47, 1.0), (29, 1.0)]))
@example(run_of([(29, 1.0), (29, 2.0), (47, 1.0)]))
def test_the_root_is_the_first_to_fail_by_itself(run):
    """Where ranks failed by themselves, none of them failed before the root.

    An expected failure that comes first fails no test. The root is then the first rank to fail after one, or else the
    first that hung after one.
    """
    outcome = decide(run)
    own = {e.rank: failure for e in run.endings if (failure := own_failure(e))}
    if outcome.result != "failed" or outcome.root not in own:
        return
    _, root = min((at, rank) for rank, (at, _) in own.items())
    if own[root][1]:
        later = [(at, e.rank) for e in run.endings if (at := failure_after_an_expected_one(e)) is not None]
        hung_later = [e.rank for e in run.endings if e.kind == "hung" and e.rank in own and own[e.rank][1]]
        if later:
            _, root = min(later)
        elif hung_later:
            root = hung_later[0]
    assert outcome.root == root


# --- a rank that came to its end without the test


def test_a_rank_that_ran_nothing_has_not_passed():
    """A rank that ended in order, and from which nothing was seen to pass, is a failure of the test."""
    outcome = decide(record(finished(0), finished(1, reports=())))
    assert (outcome.result, outcome.phase, outcome.root) == ("failed", "setup", 1)
    assert outcome.headline == "rank 1 failed first: it did not run the test (of 2 ranks, gloo on cpu)"
    assert "pytest_runtest_protocol" in outcome.details
    assert note(decide(record(died(0, at=1.0), finished(1, reports=()))), 1).text == "did not run the test"


def test_set_up_alone_is_enough_where_no_more_was_wanted():
    """With --setup-only no rank runs the body, and all is well."""
    setups = passes("setup", "teardown")
    assert decide(record(finished(0, reports=setups), finished(1, reports=setups))).result == "passed"


# --- the process that watches over the ranks


def test_a_test_whose_watcher_was_killed_fails():
    """Nobody knows what its ranks did; that is said, and neither that they passed nor that they did not start."""
    lost = "the process that ranks come from was killed by SIGKILL\nits last words"
    outcome = decide(replace(record(stopped(0), stopped(1)), lost=lost))
    assert (outcome.result, outcome.phase, outcome.root) == ("failed", "call", None)
    assert outcome.headline.startswith(
        "the process that ranks come from was killed by SIGKILL while the test ran (of 2"
    )
    assert "its last words" in outcome.details
    assert outcome.notes == ()


def test_a_test_whose_watcher_was_stopped_has_timed_out():
    """It is ended at its deadline, with the stacks of the ranks that had one."""
    stack = '  File "/project/test_x.py", line 5 in test_x'
    endings = (RankEnding(rank=0, kind="hung", at=2.0, stack=stack), RankEnding(rank=1, kind="hung", at=2.0))
    outcome = decide(replace(record(*endings, timeout=5.0), lost="the process was stopped by SIGSTOP"))
    assert outcome.headline.startswith("timed out after 5 s: the process was stopped by SIGSTOP (of 2 ranks")
    assert stack in outcome.details
    assert "rank 1" not in outcome.details
