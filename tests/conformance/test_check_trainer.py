"""`check_trainer`: its results, its table, what it expects and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

import ddpcheck
from ddpcheck.conformance.results import Result, Results
from ddpcheck.conformance.suite import Suite
from fixtures.trainers import plain, wrong
from tests.conformance.conducting import Conductor, conducting

ROOT = Path(__file__).parents[2]

QUICK = ["adapter", "batch-count", "epoch-reshuffle"]
"""All of them are judged by one training."""


# --- what it returns


@pytest.fixture(scope="module")
def held() -> Results:
    """A trainer that is right, by some checks."""
    return ddpcheck.check_trainer(plain.fit, world_sizes=[1, 2], checks=["adapter", "epoch-reshuffle"])


def test_results_are_data(held: Results) -> None:
    """Each has its check, world size and status, and says how often it was checked."""
    assert [result.name for result in held] == [
        "adapter-1rank",
        "adapter-2ranks",
        "epoch-reshuffle-1rank",
        "epoch-reshuffle-2ranks",
    ]
    assert {result.status for result in held} == {"held"}
    assert held[-1].checked == 2
    assert held.ok
    assert held.summary.startswith("4 held, 0 violated in ")


@pytest.mark.long
def test_the_table_fits_a_screen(held: Results) -> None:
    """A row for each check id, a column for each world size."""
    lines = str(held).splitlines()
    assert lines[0].startswith("fixtures.trainers.plain.fit: 4 held")
    assert lines[1].split() == ["check", "1", "rank", "2", "ranks"]
    assert lines[3].split() == ["adapter", "held", "held"]
    whole = Results("all", [Result(check=check, world_size=size, status="held") for check, size in Suite()])
    assert len(str(whole).splitlines()) <= 40


def test_a_violation_is_raised_with_everything_that_was_found() -> None:
    """A call whose results nobody looks at cannot pass by mistake."""
    with pytest.raises(ddpcheck.NonConformance) as raised:
        ddpcheck.check_trainer(wrong.trains_nothing, world_sizes=[2], checks=QUICK)
    assert "no forward of job.model" in str(raised.value)
    statuses = {result.check: result.status for result in raised.value.results}
    assert statuses == {"adapter": "violated", "batch-count": "not-checked", "epoch-reshuffle": "not-checked"}


@pytest.mark.long
def test_nothing_checked_is_a_failure() -> None:
    """A trainer that supports nothing has not held."""
    found = ddpcheck.check_trainer(wrong.supports_nothing, world_sizes=[1], checks=QUICK, on_failure="return")
    assert not found.ok
    assert [result.status for result in found] == ["violated", "not-checked", "not-checked"]
    assert "there is no training in it" in str(found)


# --- expected failures


@pytest.fixture(scope="module")
def conductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    with conducting(tmp_path_factory.mktemp("expected"), "fixtures.trainers.wrong", wrong.ADAPTERS) as one:
        yield one


@pytest.mark.long
def test_an_expected_failure_is_one(conductor: Conductor) -> None:
    """It is told with its reason, and its findings are kept."""
    reasons = {"adapter": "it returns after an epoch, as its authors know"}
    result = conductor.result("returns_early", "adapter", expected_failures=reasons)
    assert (result.status, result.reason) == ("expected", reasons["adapter"])
    assert result.findings


def test_an_unexpected_pass_fails(conductor: Conductor) -> None:
    """What holds although it was expected to fail is violated, and says what to do."""
    result = conductor.result("supports_most", "adapter", expected_failures={"adapter": "it was once so"})
    assert result.status == "violated"
    assert "held, although expected_failures says that it fails (it was once so): take it off that list" in result.text


@pytest.mark.long
def test_one_rank_may_hold_where_the_others_fail(conductor: Conductor) -> None:
    """A name without a world size stands for those from 2 on; one with it is strict there."""
    known: dict[str, Any] = {"expected_failures": {"adapter": "at several ranks"}}
    assert conductor.result("supports_most", "adapter", world_size=1, **known).status == "held"
    known = {"expected_failures": {"adapter-1rank": "at one rank"}}
    assert conductor.result("supports_most", "adapter", world_size=1, **known).status == "violated"


def test_not_checked_is_not_an_unexpected_pass(conductor: Conductor) -> None:
    """What the library does not support may stand on the list."""
    known: dict[str, Any] = {"expected_failures": {"gradient-oracle:accumulation": "not yet"}}
    assert conductor.result("supports_most", "gradient-oracle:accumulation", **known).status == "not-checked"


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"gradient-orcale": "?"}, "no check of this trainer is called so: did you mean 'gradient-oracle'?"),
        ({"adapter-7ranks": "?"}, "expected_failures names 'adapter-7ranks'"),
        ({"adapter": " "}, "has no reason: say in a sentence whose fault it is"),
        ({"gradient-oracle:tokens": "?"}, "no check of this trainer is called so"),
    ],
)
def test_a_name_that_matches_nothing_fails(expected: dict[str, str], words: str) -> None:
    """It is refused before anything is trained."""
    with pytest.raises(ValueError, match="expected_failures") as raised:
        ddpcheck.check_trainer(plain.fit, expected_failures=expected)
    assert words in str(raised.value)


# --- what it refuses


def inner() -> Any:
    def fit(job: ddpcheck.Job) -> None: ...

    return fit


@pytest.mark.parametrize(
    ("fit", "error", "words"),
    [
        (None, TypeError, "expected a function that takes a job"),
        (lambda: None, TypeError, "cannot be called as fit(job): let it take one argument, the job"),
        (lambda job: None, ValueError, "define it by `def` at the top level of a module"),
        (partial(plain.fit), ValueError, "parametrize_with_checks takes any callable"),
        (inner(), ValueError, "check_trainer cannot find"),
    ],
)
def test_what_is_no_adapter_is_refused(fit: Any, error: type[Exception], words: str) -> None:
    """With a sentence that says what it should be."""
    with pytest.raises(error) as raised:
        ddpcheck.check_trainer(fit)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world_sizes": []}, "world_sizes is empty"),
        ({"world_sizes": [0]}, "expected whole numbers from 1 to 16"),
        ({"world_sizes": [2.0]}, "expected whole numbers from 1 to 16"),
        ({"checks": ["gradient-orcale"]}, "did you mean 'gradient-oracle'?"),
        ({"checks": ["gradient-sync"], "world_sizes": [1]}, "a suite that checks nothing cannot hold"),
        ({"losses": ["token"]}, "there are samples, tokens, pairs"),
        ({"world_sizes": 2.0}, "expected a list of numbers of ranks"),
        ({"checks": []}, "checks is empty: leave it out for all of them"),
        ({"losses": []}, "losses is empty"),
        ({"expected_failures": ["adapter"]}, "expected a dict of names and reasons"),
        ({"timeout": 0}, "expected seconds, more than 0"),
        ({"timeout": float("nan")}, "expected seconds, more than 0"),
        ({"on_failure": "ignore"}, "expected 'raise' or 'return'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], words: str) -> None:
    """With a sentence that names the argument and the fix."""
    with pytest.raises(ValueError, match=re.escape(words)):
        ddpcheck.check_trainer(plain.fit, **arguments)


# --- where an adapter may be

SCRIPT = """
    import ddpcheck
    from fixtures.trainers.plain import Trainer

    def fit(job):
        Trainer(job).run()

    if __name__ == "__main__":
        print(ddpcheck.check_trainer(fit, world_sizes=[2], checks=["adapter"]))
"""


@pytest.mark.long
def test_an_adapter_may_be_in_a_script(tmp_path: Path) -> None:
    """The ranks import the script, without what stands under its `if __name__ == "__main__"`."""
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT))
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("__main__.fit: 1 held, 0 violated")
    assert run.stdout.count("__main__.fit") == 1


def test_a_session_without_a_file_is_refused() -> None:
    """What was typed into an interpreter is in no module that ranks could import."""
    code = "import ddpcheck\ndef fit(job): ...\nddpcheck.check_trainer(fit)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot find fit in the ranks, since this session has no file: write it into a module" in run.stderr


@pytest.mark.long
def test_an_adapter_whose_module_fails_in_the_ranks_is_told(tmp_path: Path) -> None:
    """What importing it raises there is shown."""
    (tmp_path / "mine.py").write_text(
        "import os\ndef fit(job): ...\nif os.environ.get('DDPCHECK_RUN'):\n    raise OSError('not twice')\n"
    )
    code = "import ddpcheck, mine\nddpcheck.check_trainer(mine.fit, world_sizes=[2], checks=['adapter'])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": "."}
    )
    assert "NonConformance" in run.stderr
    assert "not twice" in run.stderr


# --- what it leaves on disk

STANDING = """
    import os, signal, sys
    import ddpcheck

    def fit(job):
        os.write(os.open(os.environ["BEGUN"], os.O_WRONLY), b"!")
        signal.pause()

    if __name__ == "__main__":
        ddpcheck.check_trainer(fit, world_sizes=[2], checks=["adapter"])
"""


def test_a_session_that_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    """Whoever watches over its ranks removes what the trainings have written."""
    script, temp, begun = tmp_path / "train.py", tmp_path / "temp", tmp_path / "begun"
    script.write_text(dedent(STANDING))
    temp.mkdir()
    os.mkfifo(begun)
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temp), "BEGUN": str(begun)}
    with subprocess.Popen([sys.executable, str(script)], env=env) as session:
        with begun.open("rb") as told:
            assert told.read(1) == b"!"
        assert len(list(temp.glob("ddpcheck-*"))) == 3  # its adapter's, the zygote's, and that of the trainings
        below = psutil.Process(session.pid).children(recursive=True)
        session.kill()
    psutil.wait_procs(below)
    assert list(temp.glob("ddpcheck-*")) == []
