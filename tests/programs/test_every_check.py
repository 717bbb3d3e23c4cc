"""Each check has a faulty program, of which it is the first finding, and a correct twin, of which nothing is said."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddpcheck.checks.registry import checks, explanation, has_part
from ddpcheck.report import json_report
from ddpcheck.report.finding_text import text_of
from tests.conformance.conducting import Conductor, conducting
from tests.programs.reported import by_command, first_finding, folder, reported
from tests.recordings.judging import Replayed
from tests.torch_names import LOSSES_ARE_NOT_TAKEN_APART, skip_without

OF_RUNS = [check for check in checks() if has_part(check, "run")]
OF_TRAINERS = [check for check in checks() if not has_part(check, "run")]

WITHOUT_A_GPU = "ddpcheck saw no module on a GPU"
"""Why a check may have had nothing to look at in a correct program."""


@pytest.fixture(scope="module")
def conductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    names = [f"{folder(check).name}_{which}" for check in OF_TRAINERS for which in ("faulty", "correct")]
    with conducting(tmp_path_factory.mktemp("trainers"), "tests.programs.oracle_programs", names) as one:
        yield one


@pytest.mark.parametrize("check", checks())
def test_both_programs_are_there(check: str) -> None:
    """Short, and alike but for a few lines; a sentence at the top of each says what it does."""
    faulty, correct = ((folder(check) / name).read_text().splitlines() for name in ("faulty.py", "correct.py"))
    differing = [line for line in difflib.ndiff(faulty, correct) if line[0] in "+-" and line[1:].strip()]
    assert len(differing) <= 8, differing
    assert faulty[0] != correct[0]
    for lines in (faulty, correct):
        assert lines[0] == f'"""{ast.get_docstring(ast.parse(lines[0]))}"""'
        assert lines[0].endswith('."""')
        assert lines[1] == ""
        assert len(lines) < 50
    assert (folder(check) / "reported.txt").read_text().startswith(f"{check} ")


def severity(check: str) -> str:
    """What the fault is: as bad as a finding can be, but where the explanation says when it is a warning alone."""
    worst = checks()[check].severity
    told = (folder(check) / "reported.txt").read_text().splitlines()[0]
    if worst == "error" and told.startswith(f"{check} at risk: "):
        assert "A warning" in explanation(check).partition("## Severity")[2]
        return "warning"
    return worst


@pytest.mark.parametrize("check", OF_RUNS)
def test_a_fault_is_found(check: str, recorded: Callable[[str], Replayed]) -> None:
    """By this check and no other, in the words of reported.txt."""
    skip_unable(check, "faulty.py")
    document = json_report.document(recorded(f"checks/{folder(check).name}/faulty").verdict)
    assert document["internal"] == []
    assert [(f["check"], f["severity"]) for f in document["findings"]] == [(check, severity(check))]
    assert first_finding(document) == (folder(check) / "reported.txt").read_text()


def skip_unable(check: str, program: str) -> None:
    """Skip the test where this torch lacks what the program, or the check, needs."""
    skip_without(folder(check) / program)
    if check == "token-weight" and LOSSES_ARE_NOT_TAKEN_APART:
        pytest.skip("torch 2.4 does not say what a loss was made of")


def held(check: str, document: dict[str, Any]) -> None:
    """No finding of any check; and this one has looked."""
    assert document["internal"] == []
    assert [f["message"] for f in document["findings"]] == []
    assert document["verdict"] == "held"
    assert [rank["exit_code"] for rank in document["ranks"]] == [0, 0]
    found = document["checks"][check]
    assert found["status"] == "held" or found["skipped_because"] == WITHOUT_A_GPU, found


@pytest.mark.parametrize("check", OF_RUNS)
def test_its_twin_holds(check: str, recorded: Callable[[str], Replayed]) -> None:
    skip_unable(check, "correct.py")
    held(check, json_report.document(recorded(f"checks/{folder(check).name}/correct").verdict))


@pytest.mark.parametrize("check", OF_TRAINERS)
@pytest.mark.few(1)
def test_a_faulty_trainer_is_found_out(check: str, conductor: Conductor) -> None:
    """By this check, in the words of reported.txt."""
    result = conductor.result(f"{folder(check).name}_faulty", check)
    assert result.status == "violated", result.reason
    assert [(f.check, f.severity) for f in result.findings] == [(check, severity(check))]
    assert text_of(result.findings) + "\n" == (folder(check) / "reported.txt").read_text()


@pytest.mark.parametrize("check", OF_TRAINERS)
@pytest.mark.long
def test_the_twin_of_a_trainer_holds(check: str, conductor: Conductor) -> None:
    result = conductor.result(f"{folder(check).name}_correct", check)
    assert (result.status, result.findings) == ("held", ()), result.text


@pytest.mark.long
@pytest.mark.parametrize("check", checks())
def test_what_is_reported(check: str) -> None:
    """What the command says now is what reported.txt says."""
    skip_unable(check, "faulty.py")
    assert reported(check) == (folder(check) / "reported.txt").read_text()


@pytest.mark.long
@pytest.mark.parametrize("check", OF_RUNS)
def test_the_twin_under_the_command(check: str) -> None:
    skip_unable(check, "correct.py")
    held(check, by_command(folder(check) / "correct.py"))
