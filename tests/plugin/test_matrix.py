"""Other plugins beside ddp tests, in real sessions: what they bring holds in ranks, and no failure is lost to them.

Plugins that have nothing to do with each other share a session. pytest-cov is in test_sessions.py.
"""

from __future__ import annotations

import re
import shutil
from importlib import metadata

import pytest

from tests.inner import BLOCKED, ROOT, InnerProject, Ran

pytestmark = pytest.mark.long

CASES = ROOT / "fixtures" / "cases" / "pytest"

PLUGINS = {
    "pytest-asyncio": ["asyncio"],
    "pytest-benchmark": ["benchmark"],
    "pytest-forked": ["pytest_forked"],
    "pytest-html": ["html", "html_fixtures", "metadata"],
    "pytest-mock": ["pytest_mock"],
    "pytest-randomly": ["randomly"],
    "pytest-repeat": ["repeat"],
    "pytest-rerunfailures": ["rerunfailures"],
    "pytest-sugar": ["sugar"],
    "pytest-timeout": ["timeout"],
}
"""What is to be installed, and by which names pytest knows it."""


def need(*distributions: str) -> None:
    """Skip a test where one of these is not installed."""
    there = {(found.name or "").lower() for found in metadata.distributions()}
    missing = [name for name in distributions if name not in there]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed; ddpcheck's extra `test` has it")


def beside(tmp_path_factory: pytest.TempPathFactory, *distributions: str) -> InnerProject:
    """A project whose sessions have these plugins."""
    need(*distributions)
    names = [name for one in distributions for name in PLUGINS.get(one, ())]
    return InnerProject(tmp_path_factory.mktemp("beside") / "project", names)


def case(project: InnerProject, name: str) -> None:
    shutil.copy(CASES / name, project.folder / name)


def lines(ran: Ran, start: str) -> list[str]:
    """What the lines of a session name that start with this word, without the reasons behind."""
    found = (line.split(" - ")[0].strip() for line in ran.stdout.splitlines() if line.startswith(start))
    return sorted({line.removeprefix(start).strip() for line in found})


def failed_subtests(ran: Ran) -> list[tuple[str, str]]:
    """What the summary lists: the test, and the message and parameters, as pytest or pytest-subtests writes these."""
    summary = ran.stdout.split("short test summary info")[1]
    found = []
    for line in summary.splitlines():
        words = re.sub(r"SUBFAIL(ED)?", " ", line.split(" - ")[0])
        if words != line.split(" - ")[0]:
            (test,) = re.findall(r"\S+\.py::\S+", words)
            # pytest-xdist makes a string of a value.
            found.append((test, " ".join(words.replace(test, " ").replace("'", "").split())))
    return sorted(found)


def test_what_ci_installs_has_every_plugin() -> None:
    """Where the extra is installed nothing here is skipped; and none of the plugins disturbs the rest of the suite."""
    extra = (ROOT / "pyproject.toml").read_text().split("test = [")[1].split("\n]")[0]
    assert {*PLUGINS, "pytest-cov", "pytest-subtests", "pytest-xdist"} == set(re.findall(r'"(pytest-\w+)>=', extra))
    assert sorted(BLOCKED) == sorted(name for names in PLUGINS.values() for name in names)


# --- pytest-timeout

TIMEOUTS = """
import time

import ddpcheck
import pytest

@pytest.mark.ddp
@pytest.mark.timeout(1, method="thread")
def test_its_mark(ddp):
    time.sleep(90)

@pytest.mark.ddp(timeout=30)
@pytest.mark.timeout(1)
def test_both_marks(ddp):
    time.sleep(90)

@pytest.mark.ddp(timeout=30)
def test_our_mark(ddp):
    time.sleep(4.5)

@ddpcheck.parametrize_with_checks(lambda job: time.sleep(3), world_sizes=[2], checks=["adapter"])
@pytest.mark.timeout(1, method="signal")
def test_trainer(check):
    check()

@pytest.mark.ddp
def test_after_a_trainer(ddp):
    assert ddp.rank == 2

def test_without_ranks():
    time.sleep(90)
"""


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_timeout(tmp_path_factory: pytest.TempPathFactory, method: str) -> None:
    """Its seconds end the ranks, which show their stacks; its own ways to end a test do not touch the session.

    Where it interrupts a test that has ranks work for it, the next test is not given what these did.
    """
    project = beside(tmp_path_factory, "pytest-timeout")
    case(project, "test_timeout_plugin.py")
    plain = method == "signal"  # the other method ends the session with a plain test
    project.write("test_more.py", TIMEOUTS if plain else TIMEOUTS.split("def test_without_ranks")[0])
    ran = project.run("--timeout", "4", "--timeout-method", method)
    slow = {"test_slow": 4, "test_its_mark": 1, "test_both_marks": 1}
    expected = dict.fromkeys(("test_first", "test_after", "test_our_mark"), "passed") | dict.fromkeys(slow, "failed")
    expected |= dict.fromkeys(("test_trainer[adapter-2ranks]", "test_after_a_trainer"), "failed")
    if plain:
        expected["test_without_ranks"] = "failed"
    assert {name: seen.outcome for name, seen in ran.tests.items()} == expected, ran.stdout
    for name, seconds in slow.items():
        assert f"timed out after {seconds} s with ranks 0 and 1 still running" in ran[name].text
        assert ran[name].text.count(f" in {name}") == 2
    assert "from pytest-timeout" in ran["test_trainer[adapter-2ranks]"].text
    assert "assert 0 == 2" in ran["test_after_a_trainer"].text
    assert "INTERNALERROR" not in ran.stdout + ran.stderr
    assert project.leftover_processes() == []


# --- freezegun

FROZEN = """
import time

import pytest
import torch.distributed as dist
from freezegun import freeze_time

LARGE = ["torch", "numpy", "sympy", "hypothesis", "scipy", "sklearn", "pandas"]  # seconds to look through
@pytest.fixture(scope="session", autouse=True)
def frozen():
    with freeze_time("2030-01-01", ignore=LARGE):
        yield

@pytest.mark.ddp(timeout=20)
def test_ranks_meet(ddp):
    first = time.monotonic()
    dist.barrier()
    time.sleep(0.01)
    assert time.monotonic() == first and time.gmtime().tm_year == 2030

@pytest.mark.ddp(timeout=5)
def test_hangs(ddp):
    if ddp.rank == 0:
        time.sleep(90)

@pytest.mark.ddp(timeout=20)
def test_after(ddp):
    pass
"""


def test_time_that_stands_still(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests that freeze time have their deadlines all the same, in pytest's process and in ranks."""
    project = beside(tmp_path_factory, "freezegun")
    project.write("test_frozen.py", FROZEN)
    ran = project.run()
    expected = {"test_ranks_meet": "passed", "test_hangs": "failed", "test_after": "passed"}
    assert {name: seen.outcome for name, seen in ran.tests.items()} == expected, ran.stdout
    assert "timed out after 5 s with rank 0 still running" in ran["test_hangs"].text


# --- pytest-rerunfailures

RERUNS = """
import os
import signal

import pytest

def first(ddp, request):
    marker = ddp.tmp_path.parents[1] / f"{request.node.name}{ddp.rank}"
    there = marker.exists()
    marker.touch()
    return not there

class Odd(ValueError): pass

@pytest.mark.ddp
def test_always(ddp):
    assert ddp.rank == 0

@pytest.mark.ddp
@pytest.mark.flaky(reruns=2)
def test_its_mark(ddp):
    assert ddp.rank == 0

@pytest.mark.ddp
def test_killed(ddp, request):
    if first(ddp, request) and ddp.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.ddp
@pytest.mark.flaky(reruns=2, only_rerun=["^ValueError"])
def test_another_error(ddp):
    assert False

@pytest.mark.ddp
@pytest.mark.flaky(reruns=1, only_rerun=["^Odd: this"])
def test_that_error(ddp):
    raise Odd("this")

@pytest.mark.ddp
@pytest.mark.flaky(reruns=1, condition="isinstance(error, ValueError)")
def test_that_class(ddp):
    raise Odd("this")

@pytest.mark.ddp
@pytest.mark.flaky(reruns=1, only_rerun=["KeyError"])
def test_its_cause(ddp):
    try:
        {}["absent"]
    except KeyError as error:
        raise Odd("this") from error

@pytest.mark.ddp
@pytest.mark.flaky(reruns=0)
def test_never(ddp):
    assert False

@pytest.mark.ddp
def test_in_a_subtest(ddp, subtests, request):
    with subtests.test("part"):
        assert not first(ddp, request)
"""


def test_reruns(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A failed test runs again, in new ranks, as often and for such errors as its mark and the options say."""
    project = beside(tmp_path_factory, "pytest-rerunfailures")
    case(project, "test_rerun.py")
    project.write("test_more.py", RERUNS)
    ran = project.run("--reruns", "1", "-rAR")
    again = {"test_always": 1, "test_its_mark": 2, "test_that_error": 1, "test_that_class": 1, "test_its_cause": 1}
    passes = ["test_in_a_subtest", "test_killed"]
    failed = sorted([*again, "test_another_error", "test_never"])
    assert lines(ran, "PASSED") == [*(f"test_more.py::{name}" for name in passes), "test_rerun.py::test_flaky"]
    assert lines(ran, "FAILED") == [f"test_more.py::{name}" for name in failed], ran.stdout
    tried = {name: len(re.findall(rf"^RERUN test_\w+\.py::{name}$", ran.stdout, re.M)) for name in failed + passes}
    assert {name: count for name, count in tried.items() if count} == again | dict.fromkeys(passes, 1), ran.stdout
    counted = 8 if pytest.version_tuple < (9,) else 7  # there the first try's subtest still counts
    assert f" {counted} failed, 3 passed, 9 rerun" in ran.stdout
    assert "rank 1 failed first: assert 1 == 0" in ran.stdout


# --- subtests: pytest's own, or those of pytest-subtests; and those of unittest

SUBTESTS = """
import unittest

import pytest

@pytest.mark.ddp
def test_all_pass(ddp, subtests):
    for i in range(2):
        with subtests.test(i=i):
            print("seen")

@pytest.mark.ddp
def test_one_rank_fails(ddp, subtests):
    for i in range(2):
        with subtests.test("of one", i=i):
            assert ddp.rank < 1 or i == 0

@pytest.mark.ddp
def test_some_skip(ddp, subtests):
    with subtests.test("skips"):
        if ddp.rank:
            pytest.skip("odd")

@pytest.mark.ddp
def test_dies(ddp, subtests):
    import os
    with subtests.test("before"):
        assert ddp.rank
    os.kill(os.getpid(), 9)

@pytest.mark.ddp
class TestCase(unittest.TestCase):
    def test_lost_peer(self):
        import torch.distributed as dist
        if dist.get_rank() == 0:
            self.fail("alone")
        dist.barrier()

    @unittest.expectedFailure
    def test_expected(self):
        self.fail("known")

    def test_skips(self):
        with self.subTest(i=0):
            self.skipTest("none")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_subtests(tmp_path_factory: pytest.TempPathFactory, workers: str) -> None:
    """Each is listed by itself, once for all ranks, and fails its test where it fails in any."""
    project = beside(tmp_path_factory, *(["pytest-subtests"] if pytest.version_tuple < (9,) else []))
    for name in ("test_subtests.py", "test_unittest_subtests.py"):
        case(project, name)
    project.write("test_more.py", SUBTESTS)
    ran = project.run("-rA", "--junitxml", "junit.xml", "-n", workers, "--dist", "worksteal")
    failed = {
        "test_more.py": ["TestCase::test_lost_peer", "test_dies", "test_one_rank_fails", "test_some_skip"],
        # A test without ranks is the plugin's own matter: that of pytest 8 has it pass.
        "test_subtests.py": ["test_sub"] if pytest.version_tuple < (9,) else ["test_sub", "test_sub_plain"],
        "test_unittest_subtests.py": ["TestU::test_plainfail", "TestU::test_subs"],
    }
    ids = sorted(f"{file}::{name}" for file, names in failed.items() for name in names)
    assert lines(ran, "FAILED") == ids, ran.stdout
    assert failed_subtests(ran) == [
        ("test_more.py::test_dies", "[before]"),
        ("test_more.py::test_one_rank_fails", "[of one] (i=1)"),
        ("test_more.py::test_some_skip", "[skips]"),
        ("test_subtests.py::test_sub", "[case] (i=1)"),
        ("test_subtests.py::test_sub_plain", "[case] (i=1)"),
        ("test_unittest_subtests.py::TestU::test_subs", "(i=1)"),
    ]
    assert ran["test_one_rank_fails"].text.endswith("contains 1 failed subtest")
    assert "rank 1 failed first (of 2 ranks, gloo on cpu)" in ran.stdout
    assert "rank 1 skipped and rank 0 did not (rank 1: odd)" in ran.stdout
    assert "it was killed by SIGKILL" in ran["test_dies"].text
    assert "rank 0 failed first" in ran["TestCase::test_lost_peer"].text
    assert ran["TestCase::test_expected"].outcome == "xfailed"
    assert ran["test_all_pass"].outcome == ran["test_props"].outcome == "passed"
    assert ran["test_skip_all"].outcome == "skipped"
    junit = (project.folder / "junit.xml").read_text()
    assert junit.count("<failure") == len(ids) + 6
    again = project.run("--lf", "--collect-only", "-q")
    assert sorted(line for line in again.stdout.splitlines() if "::" in line) == ids


# --- fixtures, items and event loops

FIXTURES = """
import asyncio
import os
import random

import pytest

@pytest.mark.ddp
def test_mock(ddp, mocker):
    import torch.distributed as dist
    replaced = mocker.patch("os.getcwd", return_value="elsewhere")
    spy = mocker.spy(dist, "barrier")
    dist.barrier()
    assert os.getcwd() == "elsewhere"
    assert spy.call_count == replaced.call_count == 1

@pytest.mark.ddp
def test_mock_fails(ddp, mocker):
    mocker.Mock().assert_called()

@pytest.mark.ddp
@pytest.mark.asyncio
async def test_async(ddp):
    import torch, torch.distributed as dist
    await asyncio.sleep(0)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2

@pytest.mark.ddp
@pytest.mark.asyncio
async def test_async_fails(ddp):
    await asyncio.sleep(0)
    assert ddp.rank == 0

@pytest.mark.ddp
async def test_async_without_its_mark(ddp):
    assert False

@pytest.mark.ddp
@pytest.mark.repeat(2)
def test_repeat(ddp): pass

@pytest.mark.ddp(world_size=[1, 2])
@pytest.mark.repeat(2)
def test_repeat_sizes(ddp):
    assert ddp.world_size == 1

@pytest.mark.ddp
def test_benchmark(ddp, benchmark):
    import torch, torch.distributed as dist
    total = torch.ones(1)
    benchmark(dist.all_reduce, total)
    assert total == 2

@pytest.mark.ddp
def test_benchmark_fails(ddp, benchmark):
    assert benchmark(lambda: ddp.rank) == 0

@pytest.mark.ddp
def test_random(ddp):
    print(f"<{random.random()}>")

@pytest.mark.ddp
def test_random_fails(ddp):
    assert random.random() > 1
"""


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One session with plugins that bring fixtures and marks."""
    names = ("pytest-mock", "pytest-asyncio", "pytest-repeat", "pytest-benchmark", "pytest-randomly")
    project = beside(tmp_path_factory, *names)
    project.write("test_it.py", FIXTURES)
    return project.run("-rA")


def test_mock(fixtures: Ran) -> None:
    """`mocker` replaces in each rank, and what it raises fails the test."""
    assert fixtures["test_mock"].outcome == "passed", fixtures.stdout
    assert fixtures["test_mock_fails"].outcome == "failed"
    assert "Expected 'mock' to have been called" in fixtures["test_mock_fails"].text


def test_asyncio(fixtures: Ran) -> None:
    """A coroutine is waited for in each rank; one that is nobody's fails, as it does without ranks."""
    assert fixtures["test_async"].outcome == "passed", fixtures.stdout
    assert fixtures["test_async_fails"].outcome == "failed"
    assert "rank 1 failed first" in fixtures["test_async_fails"].text
    alone = "skipped" if pytest.version_tuple < (8, 4) else "failed"
    assert fixtures["test_async_without_its_mark"].outcome == alone


def test_repeat(fixtures: Ran) -> None:
    """Every turn is an item, for every world size."""
    turns = ("1-2", "2-2")
    assert [fixtures[f"test_repeat[{turn}]"].outcome for turn in turns] == ["passed"] * 2
    names = sorted(name for name in fixtures.tests if name.startswith("test_repeat_sizes"))
    assert len(names) == 4
    assert {name: fixtures[name].outcome for name in names} == {
        name: "passed" if "1rank" in name else "failed" for name in names
    }


def test_benchmark(fixtures: Ran) -> None:
    """Nothing is measured in ranks, which a warning says: they would differ in their number of rounds, and wait."""
    assert fixtures["test_benchmark"].outcome == "passed", fixtures.stdout
    assert fixtures["test_benchmark_fails"].outcome == "failed"
    for name in ("test_benchmark", "test_benchmark_fails"):
        assert "pytest-benchmark has measured nothing" in " ".join(fixtures[name].warnings)
    assert "pytest-benchmark" not in " ".join(fixtures["test_mock"].warnings)


def test_randomly(fixtures: Ran) -> None:
    """Python's stream begins alike in every rank, from the seed of the session and the test."""
    first, second = re.findall(r"<([\d.]+)>", fixtures["test_random"].output)
    assert first == second
    assert fixtures["test_random_fails"].outcome == "failed"


# --- reports, and processes of its own for each test

REPORTS = """
import pytest

@pytest.mark.ddp
def test_passes(ddp): pass

@pytest.mark.ddp
def test_fails(ddp):
    assert ddp.rank == 0

@pytest.mark.ddp
def test_crashes(ddp):
    import os
    os.abort()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[InnerProject, Ran]:
    """One session with other reporters, in which plain tests would be forked."""
    project = beside(tmp_path_factory, "pytest-html", "pytest-sugar", "pytest-forked")
    project.write("test_it.py", REPORTS)
    return project, project.run("--html", "report.html", "--self-contained-html", "--force-sugar", "--forked")


def test_forked(reports: tuple[InnerProject, Ran]) -> None:
    """The test runs in its ranks, which are processes of their own anyway."""
    project, ran = reports
    assert {name: seen.outcome for name, seen in ran.tests.items()} == {
        "test_passes": "passed", "test_fails": "failed", "test_crashes": "failed"
    }, ran.stdout  # fmt: skip
    assert "rank 1 failed first" in ran["test_fails"].text
    assert "SIGABRT" in ran["test_crashes"].text
    assert project.leftover_processes() == []


def test_html(reports: tuple[InnerProject, Ran]) -> None:
    """Its page has every test, and what its ranks have said."""
    project, _ = reports
    page = (project.folder / "report.html").read_text()
    for words in ("test_it.py::test_passes", "test_it.py::test_fails", "rank 1 failed first", "SIGABRT"):
        assert words in page
    assert "2 Failed" in page
    assert "1 Passed" in page


def test_sugar(reports: tuple[InnerProject, Ran]) -> None:
    """Its marks and sums are those of a session without ranks; ranks write to no terminal."""
    _, ran = reports
    assert "✓" in ran.stdout
    assert re.search(r"1 passed\W+2 failed", ran.stdout), ran.stdout
    assert "could not start" not in ran.stdout
