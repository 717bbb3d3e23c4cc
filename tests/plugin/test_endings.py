"""Every row of the contract's table of endings, and its fine print, each planted in real ranks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.inner import InnerProject, Ran
from tests.plugin.endings_project import ENDINGS


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One inner session in which every test ends in its own way."""
    project = InnerProject(tmp_path_factory.mktemp("endings") / "project")
    project.write("test_endings.py", ENDINGS)
    result = project.run("test_endings.py")
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []
    result.folder = project.temp  # type: ignore[attr-defined]
    return result


@pytest.mark.parametrize("ranks", ["1rank", "2ranks", "4ranks"])
def test_every_rank_passed(ran: Ran, ranks: str) -> None:
    """A test passes when every rank passed, and each rank's output is kept under its number."""
    seen = ran[f"test_pass[{ranks}]"]
    assert seen.outcome == "passed"
    assert list(seen.phases) == ["setup", "call", "teardown"]
    for rank in range(int(ranks[0])):
        assert f"Captured stdout call (rank {rank})\nsaid by {rank}" in seen.output


def test_a_rank_raised(ran: Ran) -> None:
    """The report shows the rank that failed first with pytest's rewritten values, and the others as consequences."""
    seen = ran["test_raise_on_one"]
    assert seen.outcome == "failed"
    assert seen.text.startswith("rank 1 failed first (of 2 ranks, gloo on cpu)")
    assert "assert {'loss': 1} == {'loss': 7}" in seen.text
    assert re.search(r"^rank 0 (lost its peer: RuntimeError|was still running, and was stopped)", seen.text, re.M)
    assert "FAILED test_endings.py::test_raise_on_one - rank 1 failed first: Asse" in ran.stdout


def test_a_failure_is_not_held_up_by_ranks_that_pass(ran: Ran) -> None:
    """Ranks whose body ends after the first failure tear down and leave as ever."""
    seen = ran["test_raises_while_the_other_still_works"]
    assert "ValueError: at once" in seen.text
    assert [rank["ending"] for rank in seen.ddp["ranks"]] == ["finished", "finished"]


def test_the_first_failure_by_the_clock(ran: Ran) -> None:
    """Of two failures of ranks' own, the earlier is the first, whatever its rank."""
    seen = ran["test_second_raises_later"]
    assert "rank 1 failed first" in seen.text
    assert "KeyError: 'the earlier one'" in seen.text


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT", "SIGTERM"])
def test_a_rank_died_by_a_signal(ran: Ran, name: str) -> None:
    """A death names the rank and the signal, and shows what the rank had printed."""
    seen = ran[f"test_signal[{name}]"]
    assert seen.outcome == "failed"
    assert f"rank 2 failed first: it was killed by {name} before the test's body ended" in seen.text
    assert "Captured stderr (rank 2)\nlast words of 2" in seen.output


def test_a_crash_shows_the_python_stack(ran: Ran) -> None:
    """A rank that crashed in native code has left its Python stack behind."""
    assert "test_endings.py" in ran["test_signal[SIGSEGV]"].text


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_left(ran: Ran, code: int) -> None:
    """Leaving before the body ended fails with any exit code, 0 too."""
    seen = ran[f"test_leave[{code}]"]
    assert seen.outcome == "failed"
    assert f"rank 1 failed first: it left with exit code {code} before the test's body ended" in seen.text


def test_a_rank_left_while_the_other_had_ended(ran: Ran) -> None:
    """A rank that leaves is noticed also where nobody waits for it."""
    assert ran["test_leave_after_a_lone_pass"].outcome == "failed"


def test_sys_exit(ran: Ran) -> None:
    """sys.exit in a test is a failure of that rank, with its traceback."""
    seen = ran["test_sys_exit"]
    assert seen.outcome == "failed"
    assert "rank 1 failed first: it left the test by SystemExit" in seen.text
    assert "sys.exit(0)" in seen.text


def test_the_deadline_passed(ran: Ran) -> None:
    """A timeout says so, and shows the stack of every rank still running, with the user's line."""
    seen = ran["test_timeout"]
    assert seen.outcome == "failed"
    assert seen.text.startswith("timed out after 1.5 s with ranks 0 and 1 still running")
    sleeping = ENDINGS[: ENDINGS.index("time.sleep(1000)\n    dist.barrier()")].count("\n") + 1
    assert f'test_endings.py", line {sleeping} in test_timeout' in seen.text
    assert f'test_endings.py", line {sleeping + 1} in test_timeout' in seen.text


def test_the_deadline_passed_in_native_code_that_holds_the_gil(ran: Ran) -> None:
    """Stacks are shown also of ranks whose interpreter cannot run."""
    seen = ran["test_timeout_holding_the_gil"]
    assert seen.outcome == "failed"
    assert seen.text.count("in hold_the_gil") == 2


def test_the_deadline_passed_for_one_rank(ran: Ran) -> None:
    """Only ranks that still run are shown as such."""
    seen = ran["test_timeout_of_one_while_the_other_has_ended"]
    assert "timed out after 1.5 s with rank 1 still running" in seen.text
    assert "rank 0 its body had ended" in seen.text


@pytest.mark.parametrize(("name", "reason"), [("test_skip_mark", "not today"), ("test_skip_in_body", "not here")])
def test_all_skipped(ran: Ran, name: str, reason: str) -> None:
    """A test that all ranks skip is skipped, with the reason."""
    assert ran[name].outcome == "skipped"
    assert reason in ran[name].text


@pytest.mark.parametrize("name", ["test_skip_on_one", "test_skip_on_one_while_the_other_waits"])
def test_some_skipped(ran: Ran, name: str) -> None:
    """A test that some ranks skip fails, and says which and why."""
    assert ran[name].outcome == "failed"
    assert "rank 1 skipped and rank 0 did not (rank 1: rank one will not)" in ran[name].text


def test_a_fixture_failed_in_one_rank(ran: Ran) -> None:
    """A fixture that fails is an error at setup, as in pytest, and names the rank."""
    seen = ran["test_fixture_fails_on_one"]
    assert seen.phases == {"setup": "failed", "teardown": "passed"}
    assert "rank 1 failed first" in seen.text
    assert "LookupError: no such dataset" in seen.text


def test_a_teardown_failed_in_one_rank(ran: Ran) -> None:
    """A fixture that fails in teardown is an error at teardown of a test that passed."""
    seen = ran["test_teardown_fails_on_one"]
    assert seen.phases == {"setup": "passed", "call": "passed", "teardown": "failed"}
    assert "OSError: cannot clean up" in seen.text


def test_function_scoped_fixtures_run_in_the_ranks_and_nowhere_else(ran: Ran) -> None:
    """Each rank sets up and tears down the function's fixtures, and no other process does."""
    folder: Path = ran.folder  # type: ignore[attr-defined]
    lines = (folder / "fixture.log").read_text().split()
    ranks = set((folder / "ranks.log").read_text().split())
    assert len(ranks) == 2
    assert str(os.getpid()) not in ranks
    assert {line for line in lines if line != "down"} == ranks
    assert lines.count("down") == 2


def test_keyboard_interrupt_in_a_rank(ran: Ran) -> None:
    """A KeyboardInterrupt inside a rank fails that test, and the session goes on."""
    assert ran["test_keyboard_interrupt"].outcome == "failed"
    assert "KeyboardInterrupt" in ran["test_keyboard_interrupt"].text
    assert ran["test_plain_in_between"].outcome == "passed"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_leaves_a_thread", "rank 1 left a thread running when its test had ended: straggler"),
        ("test_leaves_a_process", "sleep 1001"),
        ("test_leaves_a_daemon", "sleep 1002"),
    ],
)
def test_leftovers_are_named_and_fail_nothing(ran: Ran, name: str, words: str) -> None:
    """A thread or process left over is named in a warning, once, and the test passes."""
    assert ran[name].outcome == "passed"
    assert sum(words in warning for warning in ran[name].warnings) == 1


def test_a_forked_child_is_no_rank(ran: Ran) -> None:
    """A process that a test forked, and that falls out of the test, reports nothing."""
    assert ran["test_a_forked_child_comes_back_out_of_the_test"].outcome == "passed"


@pytest.mark.parametrize("name", ["test_destroys_the_group", "test_makes_groups_and_leaves_them"])
def test_groups(ran: Ran, name: str) -> None:
    """A body may destroy the default group, or make groups and leave them."""
    assert ran[name].outcome == "passed"


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("test_xfail_raises", "xfailed"),
        ("test_xfail_raises_another", "failed"),
        ("test_xfail_strict_passes", "failed"),
        ("test_xfail_passes", "xpassed"),
        ("test_xfail_dies", "xfailed"),
        ("test_xfail_raises_dies", "failed"),
        ("test_xfail_on_one_rank_without_a_collective", "xfailed"),
    ],
)
def test_xfail_is_judged_on_the_first_rank_to_fail(ran: Ran, name: str, outcome: str) -> None:
    """xfail, its raises and its strictness look at the first rank to fail, not at the consequences."""
    assert ran[name].outcome == outcome, ran[name].text


def test_an_assertion_that_only_some_ranks_call(ran: Ran) -> None:
    """It is reported with the line of those that did, without waiting for the deadline."""
    seen = ran["test_asymmetric_assertion"]
    assert seen.outcome == "failed"
    assert "rank 0 called assert_replicas_identical" in seen.text
    assert "rank 1 ended the test's body without a call" in seen.text


def test_an_assertion_that_only_some_ranks_call_before_a_collective(ran: Ran) -> None:
    """Where the others are stuck in a collective, the report names the assertion and its line."""
    seen = ran["test_asymmetric_assertion_before_a_collective"]
    assert seen.outcome == "failed"
    assert "assert_replicas_identical" in seen.text
    assert "barrier" in seen.text


def test_a_violated_invariant(ran: Ran) -> None:
    """A verdict is every rank's, and is reported once."""
    seen = ran["test_violation"]
    assert seen.outcome == "failed"
    assert "rank 0 failed first, with a verdict that all ranks share" in seen.text
    assert seen.text.count("initial-broadcast violated") == 1


def test_closing_standard_descriptors_loses_no_result(ran: Ran) -> None:
    """A test that closes the low descriptors is still heard."""
    assert ran["test_closes_its_standard_descriptors"].outcome == "passed"


def test_odd_output_breaks_nothing(ran: Ran) -> None:
    """Bytes that are no text, lone surrogates and recorded objects survive the way out of a rank."""
    seen = ran["test_odd_output"]
    assert seen.outcome == "failed"
    assert "failed first" in seen.text
    assert ["number", 3] in seen.properties


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("TestInAClass::test_method", "passed"),
        ("TestUnittest::test_method", "passed"),
        ("TestUnittest::test_skipping_method", "skipped"),
        ("TestUnittest::test_failing_method", "failed"),
    ],
)
def test_classes(ran: Ran, name: str, outcome: str) -> None:
    """Methods of plain classes and of unittest's run in ranks too."""
    assert ran[name].outcome == outcome


def test_one_item_is_one_set_of_reports(ran: Ran) -> None:
    """However many ranks an item has, each of its phases is reported once, and the summary counts it once."""
    lines = (ran.folder.parent / "record.jsonl").read_text()  # type: ignore[attr-defined]
    for name, seen in ran.tests.items():
        for when in seen.phases:
            assert lines.count(f'"name": "{name}", "when": "{when}"') == 1, (name, when)
