"""What GitHub shows on the lines of a pull request."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck.report.github_annotations import annotation_commands
from ddpcheck.report.repository_paths import Repository
from tests.report.every_ending import ENDINGS
from tests.report.test_workflow_commands import parsed
from tests.report.verdicts import AT_RISK, ERROR, HELD, VIOLATED

HERE = Repository("/repository", "/repository/sub", "train.py")


def shown(verdict, strict=False):
    """The kinds, properties and texts of all annotations."""
    return [parsed(line) for line in annotation_commands(verdict, HERE, strict)]


def test_a_finding_is_an_annotation_on_its_line():
    """At the path from the root of the repository, with all that a reader needs."""
    error, warning = shown(VIOLATED)
    assert error == (
        "error",
        {
            "file": "sub/train.py",
            "line": "5",
            "title": "reducer-coverage: the wrapper of Net (all ranks, first at step 0, 12 times)",
        },
        "expected: a forward through the wrapper before every step\n"
        "found: none before 12 of 12 steps\n"
        "cause: likely: the loss came from `.module`\n"
        "fix: Call model(x), and not model.module(x).\n"
        "breaks: gradient-sync, parameter-sync",
    )
    assert warning[0] == "warning"
    assert set(warning[1]) == {"title"}  # it has no line


def test_what_fails_the_command_is_an_error():
    """A warning under --strict, a fault of ours."""
    assert [kind for kind, _, _ in shown(AT_RISK, strict=True)] == ["error"]
    kind, properties, text = shown(ENDINGS["internal"])[0]
    assert (kind, properties["title"]) == ("error", "ddpcheck itself failed")
    assert "not of the program" in text


def test_a_run_that_shows_nothing_says_why():
    """An exit code other than 0 is explained; a run that held is silent."""
    assert shown(HELD) == []
    for ending in ("nothing-checked", "interrupted"):
        (only,) = shown(ENDINGS[ending])
        assert (only[0], only[1]) == ("warning", {"title": f"ddpcheck: {ending.replace('-', ' ')}"})


def test_a_line_of_no_repository_is_in_the_text():
    """GitHub would put it on another file."""
    _, properties, text = shown(ENDINGS["outside"])[0]
    assert "file" not in properties
    assert text.startswith("at /elsewhere/loop.py:7 in train\n")


def test_more_than_github_keeps_are_named_by_the_last():
    """Ten of each kind; which ones are left out can be read there."""
    found = shown(ENDINGS["many"])
    assert [kind for kind, _, _ in found] == ["error"] * 10 + ["warning"] * 10
    assert found[9][1]["title"] == "ddpcheck: 4 more errors; the report has all of them"
    assert (
        found[9][2].splitlines()
        == ["reducer-coverage: the wrapper of Net (all ranks, first at step 0, 12 times) at train.py:5 in train"] * 4
    )
    ten = replace(VIOLATED, findings=(ERROR,) * 10)
    assert "more" not in shown(ten)[9][1]["title"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_is_in_it_each_is_one_command(ending, strict):
    """Nothing of a text becomes a command of its own, or ends one."""
    lines = annotation_commands(ENDINGS[ending], HERE, strict)
    for line in lines:
        assert not {"\n", "\r"} & set(line)
        kind, properties, _ = parsed(line)
        assert kind in ("error", "warning")
        assert set(properties) <= {"file", "line", "title"}
    findings = ENDINGS[ending].findings
    assert len(lines) >= min(len(findings), 10)
