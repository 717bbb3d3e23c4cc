"""How a property ends: passing, failing, crashing and hanging examples, each shrunk to the smallest, and bad input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.inner import InnerProject, Ran
from tests.properties.examples_project import CONFTEST, EXAMPLES

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InnerProject:
    made = InnerProject(tmp_path_factory.mktemp("examples") / "project")
    made.write("conftest.py", CONFTEST)
    made.write("test_examples.py", EXAMPLES)
    return made


@pytest.fixture(scope="module")
def ran(project: InnerProject) -> Ran:
    """One inner session in which every property ends in its own way."""
    result = project.run("--hypothesis-show-statistics")
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []
    return result


def smallest(text: str) -> int:
    """The n of the failing example."""
    (found,) = re.findall(r"^(?:E {3})? {4}n=(\d+),$", text, re.M)
    return int(found)


def logged(project: InnerProject, name: str) -> list[str]:
    return Path(project.temp / name).read_text().split()


PASSING = [
    "test_the_same_example",
    "test_the_same_draws",
    "test_parameters[1rank-20]",
    "test_random_numbers",
    "test_fixtures_have_time",
    "test_slower_than_the_default_deadline",
    "test_forks",
    "test_assume",
    "test_explicit_that_is_to_fail",
    "test_function_scoped_and_suppressed",
]


@pytest.mark.parametrize("name", PASSING)
def test_passing(ran: Ran, name: str) -> None:
    """Every rank gets the same example, to the last bit of its floats, also where it is drawn as the body goes."""
    seen = ran[name]
    assert seen.outcome == "passed", seen.text
    assert list(seen.phases) == ["setup", "call", "teardown"]


def test_ranks_live_as_long_as_examples_pass(ran: Ran, project: InnerProject) -> None:
    """Examples that pass are run by the same two processes, all of them."""
    assert ran["test_the_same_example"].outcome == "passed"
    pids = logged(project, "pids")
    assert len(pids) >= 20
    assert len(set(pids)) == 2


@pytest.mark.parametrize(
    ("name", "n", "headline"),
    [
        ("test_fails_on_all", 43, r"rank [01] failed first \(of 2 ranks"),
        ("test_fails_on_one", 43, r"rank 1 failed first \(of 2 ranks"),
        ("test_hangs", 43, "timed out after 1 s with rank 0 still running"),
        ("test_crashes", 43, "rank 1 failed first: it was killed by SIGSEGV before the test's body ended"),
        ("test_explicit", 61, r"rank [01] failed first \(of 2 ranks"),
        ("test_assertion", 11, r"rank [01] failed first, with a verdict that all ranks share"),
    ],
)
def test_the_smallest_example(ran: Ran, name: str, n: int, headline: str) -> None:
    """A failure, a crash and a hang are each shrunk to the smallest example, and reported as those of a test are."""
    seen = ran[name]
    assert seen.outcome == "failed"
    if "distinct failures in explicit examples" in seen.text:  # older hypothesis takes each for a failure of its own
        assert name == "test_explicit"
        return
    assert re.match(headline, seen.text), seen.text
    assert smallest(seen.text) == n
    assert "Flaky" not in seen.text


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("test_leaves", "rank 1 failed first: it left with exit code 0 before the test's body ended"),
        ("test_blob", r"rank [01] failed first \(of 2 ranks"),
        ("test_parameters[2ranks-20]", r"rank [01] failed first \(of 2 ranks"),
        ("TestOfAClass::test_method", r"rank [01] failed first \(of 2 ranks"),
        ("test_assume_on_one", "the ranks disagree about this example: rank 0 went on to the end; rank 1 rejected"),
        ("test_sys_exit", "rank [01] failed first: it left the test by SystemExit"),
        ("test_keyboard_interrupt", "rank 1 failed first"),
        ("test_xfail_of_another", "rank [01] failed first"),
        ("test_contexts", "rank [01] failed first"),
        ("test_assertion_on_one", "rank 1 failed first"),
        ("test_skips_on_one", "the ranks disagree about this example: rank 0 went on to the end; rank 1 skipped"),
    ],
)
def test_other_ends(ran: Ran, name: str, headline: str) -> None:
    """What ends a test in a rank makes an example fail."""
    seen = ran[name]
    assert seen.outcome == "failed"
    assert re.match(headline, seen.text), seen.text
    assert smallest(seen.text) > 9


def test_the_report_of_a_failure(ran: Ran) -> None:
    """The report has asserted values, the example, what was noted and printed for it alone, and the other ranks."""
    seen = ran["test_fails_on_all"]
    assert "E       assert 86 < 86" in seen.text
    assert "ddp=<2 ranks, gloo on cpu>,\nE       n=43,\nE       flag=False,\nE   )" in seen.text
    assert "E   rank 0: noted by 0" in seen.text
    assert "E   rank 1: noted by 1" in seen.text
    assert "failed in call: assert 86 < 86" in seen.text
    assert seen.output.count("printed for 43\n") == 2
    assert seen.output.count("printed for") == 2
    assert seen.ddp["world_size"] == 2
    assert "FAILED test_examples.py::test_fails_on_all - rank" in ran.stdout


def test_the_report_of_a_hang(ran: Ran) -> None:
    """The stacks of the smallest example are shown, down to the test's body."""
    text = ran["test_hangs"].text
    assert "in test_hangs" in text
    assert "following.py" not in text
    assert "hypothesis" not in text.split("test case")[0]
    assert "rank 1 its body had ended" in text


def test_the_report_of_a_crash(ran: Ran) -> None:
    assert "in test_crashes" in ran["test_crashes"].text


def test_a_hang_is_found_in_time(ran: Ran) -> None:
    """With a deadline of one second the smallest example of a hang is there long before a minute is over."""
    assert ran["test_hangs"].ddp["seconds"] < 40


def test_distinct_failures(ran: Ran) -> None:
    """Failures of other lines and kinds are shrunk and told one by one."""
    seen = ran["test_distinct"]
    assert seen.outcome == "failed"
    assert seen.text.startswith("Hypothesis found 3 distinct failures.")
    assert sorted(re.findall(r"^(?:E {3})? {4}n=(\d+),$", seen.text, re.M), key=int) == ["2", "4", "6"]
    assert "assert 2 not in (2, 3)" in seen.text
    assert "ValueError: of another kind" in seen.text
    assert "was killed by SIGKILL" in seen.text


def test_contexts(ran: Ran) -> None:
    """The exceptions that led to the failure are shown."""
    assert "KeyError: " in ran["test_contexts"].text
    if sys.version_info >= (3, 11):
        assert "ExceptionGroup: several" in ran["test_contexts"].text


def test_flaky(ran: Ran) -> None:
    """An example that fails once only is told as hypothesis tells it."""
    seen = ran["test_flaky"]
    assert seen.outcome == "failed"
    assert "produces unreliable results" in seen.text or "Inconsistent results" in seen.text
    assert "assert 5 != 5" in seen.text


def test_own_deadline(ran: Ran) -> None:
    """The default deadline is for one process; one of the user's own counts."""
    assert ran["test_slower_than_the_default_deadline"].outcome == "passed"
    assert "DeadlineExceeded: Test took" in ran["test_own_deadline"].text


def test_blob(ran: Ran) -> None:
    assert "adding @reproduce_failure(" in ran["test_blob"].text
    assert "InvalidArgument: Attempting to reproduce" in ran["test_blob_of_another_version"].text


def test_xfail(ran: Ran) -> None:
    """xfail is judged on the failure of the smallest example."""
    assert ran["test_xfail"].outcome == "xfailed"
    assert ran["test_xfail_of_another"].outcome == "failed"


def test_assume_event_and_target_reach_the_engine(ran: Ran) -> None:
    """Statistics have what bodies in ranks have said."""
    _, _, after = ran.stdout.partition("test_examples.py::test_assume:\n")
    statistics = after.partition("test_examples.py::")[0]
    counted = r"[1-9]\d* passing( examples)?, 0 failing( examples)?,( and)? [1-9]\d* invalid"
    assert re.search(counted, statistics), statistics
    assert re.search(r"\* \d+\.\d\d%, odd", statistics)
    assert "Highest target score: " in statistics


def test_ranks_that_disagree(ran: Ran) -> None:
    """A rank that rejects what another one runs into a hang is told as the cause of it."""
    text = ran["test_assume_and_hang"].text
    assert text.startswith("the ranks disagree about this example: rank 1 rejected the example (")
    assert "rank 0 went on, and waited until the deadline" in text
    assert "rank 1 rejected the example" in text.partition("the other ranks")[2] or "rank 1 rejected" in text


def test_seeds(ran: Ran, project: InnerProject) -> None:
    """The same seed gives the same examples; another one gives others."""
    assert ran["test_seeded"].outcome == ran["test_seeded_again"].outcome == "passed"
    assert logged(project, "seeded") == logged(project, "seeded_again")
    assert logged(project, "seeded") != logged(project, "seeded_otherwise")


def test_unsatisfiable(ran: Ran) -> None:
    assert re.match("FailedHealthCheck|Unsatisfiable", ran["test_never_valid"].text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_skips", "too many"),
        ("test_skips_in_a_strategy", "nothing to draw from"),
        ("test_no_phase", "told to run no"),
    ],
)
def test_skips(ran: Ran, name: str, reason: str) -> None:
    assert ran[name].outcome == "skipped"
    assert reason in ran[name].text


def test_explicit_examples(ran: Ran, project: InnerProject) -> None:
    """Explicit examples run on all ranks, and first; those that are to fail may."""
    assert ran["test_explicit_that_is_to_fail"].outcome == "passed"
    for rank in (0, 1):
        assert set(logged(project, f"explicit{rank}")) == {"61", "70"}
        first = logged(project, f"expected{rank}")
        assert set(first[:2]) == {"61", "70"}
        assert {int(n) for n in first[2:]} <= set(range(1, 61))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_draws_by_rank", r"rank 0 drew an integer from 0 to 10 \(.*\); rank 1 drew an integer from 0 to 11 \("),
        (
            "test_draws_are_caught",
            r"rank 0 drew an integer from 0 to 10 \(.*\); rank 1 drew an integer from 0 to 11 \(",
        ),
        ("test_draws_on_one", r"rank 1 drew an integer from 0 to 10 \(.*\); rank 0 had ended the body"),
    ],
)
def test_ranks_that_draw_differently(ran: Ran, name: str, said: str) -> None:
    """Draws that differ between ranks are told, with each rank's line, and are not waited for."""
    text = ran[name].text
    assert re.search("the ranks drew differently: " + said, text), text
    assert ">           " in text or ">       " in text
    assert "following.py" not in text
    if name == "test_draws_by_rank":
        assert "E   Draw 1: 21\n" in text


def test_a_failure_is_not_held_up_by_a_draw(ran: Ran) -> None:
    text = ran["test_fails_while_the_other_draws"].text
    assert text.startswith("rank 1 failed first")
    assert "rank 0 was waiting in a draw for the other ranks, and was stopped" in text


def test_filters_in_interactive_draws(ran: Ran) -> None:
    """What a filter refuses in a body is no part of an example."""
    (drawn,) = re.findall(r"^E   Draw 1: (\d+)$", ran["test_filters"].text, re.M)
    assert int(drawn) > 30
    assert int(drawn) % 2


def test_a_rejection_stays_one(ran: Ran) -> None:
    """Whatever a body makes of it: as in one process, no example is ever valid."""
    text = ran["test_rejections_are_caught"].text
    assert re.search("FailedHealthCheck|Unsatisfiable", text), text


def test_strategies_that_differ(ran: Ran) -> None:
    """A rank that cannot draw the engine's example says so, and shows none of the machinery."""
    text = ran["test_other_strategies"].text
    assert "this rank cannot draw the example that the pytest process has drawn" in text
    assert ".py:" not in text.partition("the other ranks")[0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "test_function_scoped",
            "FailedHealthCheck: (.* uses a function-scoped fixture 'own'|Function-scoped fixture 'own' used by)",
        ),
        ("test_returns", "FailedHealthCheck: Tests run under @given should return None, but test_returns returned"),
        ("test_strategy_that_raises", "ZeroDivisionError: "),
    ],
)
def test_bad_input(ran: Ran, name: str, sentence: str) -> None:
    """hypothesis' own complaints are made, in its own words."""
    assert ran[name].outcome == "failed"
    assert re.match(sentence, ran[name].text), ran[name].text


def test_a_fixture_that_fails_in_a_rank(ran: Ran) -> None:
    assert ran["test_broken_fixture"].outcome == "error"
    assert ran["test_broken_fixture"].text.startswith("rank 1 failed first")


def test_verdicts_are_counted_once(ran: Ran) -> None:
    """What was violated on the way to the smallest example is not counted: what that one violates is."""
    checks = [run["status"] for run in ran["test_assertion"].ddp["checks"]]
    assert checks.count("violated") == 1
    assert checks.count("held") > 1
