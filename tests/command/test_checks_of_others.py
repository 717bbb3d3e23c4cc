"""Checks of another package, in ``ddpcheck run``: judged under their prefix, and harmless where they are broken."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tests import progress
from tests.command import running

FILES = {
    "mylib/__init__.py": "",
    "mylib/checks/__init__.py": "",
    "mylib/checks/rates_agree/__init__.py": """
        from ddpcheck.checks.check import Check, Rule
        CHECK = Check(holds="all ranks step as often", rests_on=("steps",), rules=(
            Rule("steps-differ", "ranks step at different rates"),
            Rule("odd-steps", "a rank steps an odd number of times", advisory=True),
        ))
        """,
    "mylib/checks/rates_agree/run.py": """
        from ddpcheck import evidence as ev
        from ddpcheck.judging.world import Judged
        from ddpcheck.vocabulary.model import Finding

        def judge(world):
            steps = [len(rank.of(ev.Step)) for rank in world]
            odd = Finding(rule="odd-steps", ranks=(0,), subject="the steps", expected="an even number", found="odd",
                advice="Step once more.")
            if len(set(steps)) == 1:
                return Judged(checked=sum(steps), findings=(odd,))
            found = f"{steps} steps"
            return Judged(checked=1, findings=(odd, Finding(rule="steps-differ",
                ranks=(1,), subject="the steps", expected="all ranks to step as often", found=found, advice="Step."),))
        """,
    "mylib/checks/rates_agree/explanation.md": "Ranks step as often as each other.\n",
    "mylib/checks/always_broken/__init__.py": """
        from ddpcheck.checks.check import Check
        CHECK = Check(holds="nothing is wrong with this check")
        """,
    "mylib/checks/always_broken/run.py": """
        def judge(world):
            raise ValueError("a defect of mylib")
        """,
    "mylib-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n",
    "mylib-1.0.dist-info/entry_points.txt": "[ddpcheck.checks]\nmylib = mylib.checks\nlost = mylib.nothing\n",
}

TRAIN = """
    model, optimizer = setup()
    for _ in range(3 + {more} * dist.get_rank()):
        optimizer.zero_grad()
        optimizer.step()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package that brings two checks, and an entry point that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


@pytest.mark.parametrize(("more", "status"), [(0, "held"), (1, "violated")])
@pytest.mark.few(1)
def test_they_are_judged_and_a_defect_is_its_own(installed: Path, tmp_path: Path, more: int, status: str) -> None:
    """One holds or finds; the broken one, and a package that is not there, take nothing else with them."""
    path = running.script(tmp_path, TRAIN.format(more=more))
    ran = running.run(tmp_path, "--standalone", "--nproc-per-node", "2", path, env={"PYTHONPATH": str(installed)})
    assert ran.document is not None, ran.err
    checks = ran.document["checks"]
    assert checks["mylib/rates-agree"]["status"] == status
    assert ("mylib/rates-agree" in ran.found) == (status == "violated")
    broken = checks["mylib/always-broken"]
    assert broken["status"] == "not-checked"
    assert "its judge failed: ValueError: a defect of mylib" in broken["skipped_because"]
    assert checks["rank-failure"]["status"] == "held"
    assert ran.document["internal"] == []
    assert any("The checks of lost" in note and "mylib.nothing" in note for note in ran.document["notes"])


def test_their_rules_are_advised_of_and_left_out(installed: Path, tmp_path: Path) -> None:
    """An advisory stands apart; without the findings of a rule, its check is not checked."""
    path = running.script(tmp_path, TRAIN.format(more=1))
    rule = "mylib/rates-agree/steps-differ"
    given = ("--advise", "--skip", rule, "--standalone", "--nproc-per-node", "2", path)
    ran = running.run(tmp_path, *given, env={"PYTHONPATH": str(installed)})
    assert ran.document is not None, ran.err
    result = ran.document["checks"]["mylib/rates-agree"]
    assert (result["status"], rule in result["skipped_because"]) == ("not-checked", True)
    (advisory,) = ran.document["advisories"]
    assert (advisory["rule"], advisory["severity"]) == ("mylib/rates-agree/odd-steps", "advisory")
    assert "advisory  mylib/rates-agree/odd-steps  the steps" in ran.err


def test_they_are_listed_and_explained(installed: Path) -> None:
    """``ddpcheck checks`` and ``ddpcheck explain`` know them by their prefix."""
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); from ddpcheck.cli import main; sys.exit(main())"
    ask = [sys.executable, "-c", code]
    listed = progress.run([*ask, "checks"], text=True)
    assert "mylib/rates-agree" in listed.stdout, listed.stderr
    told = progress.run([*ask, "explain", "mylib/rates-agree"], text=True)
    assert "All ranks step as often." in told.stdout, told.stderr
    assert "Ranks step as often as each other." in told.stdout
    told = progress.run([*ask, "explain", "mylib/rates-agree/odd-steps"], text=True)
    assert "An advisory" in told.stdout, told.stderr
