"""The command in jobs of GitHub Actions and GitLab, and the files that were asked for."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from running import begin, finish, run, script

from ddpcheck.run import options as asked
from ddpcheck.run.options import WrongUsage, parse
from tests.report.test_workflow_commands import parsed

DIVERGING = """
model, optimizer = setup()
for _ in range(3):
    step(model, optimizer, model.module)  # ::error::not a command ##[error]x
dist.destroy_process_group()
"""


@pytest.fixture
def github(tmp_path):
    """The environment of a job whose repository has the scripts in a folder."""
    (tmp_path / "sub").mkdir()
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }


def commands(text):
    """The lines that the runner would take for commands."""
    return [found for line in text.splitlines() if (found := parsed(line)) is not None]


def test_a_job_of_githubs_gets_annotations(github, tmp_path, forks):
    """On the lines, at paths from the repository's root, with a summary; and none that the user's text would make."""
    path = script(tmp_path / "sub", DIVERGING)
    files = ["--sarif", "o.sarif", "--codequality", "quality.json", "--junit", "o.xml"]
    ran = run(tmp_path / "sub", *files, "--nproc-per-node", "2", path, env=github, forks=forks)
    assert ran.code == 1, ran.err
    line = (
        path.read_text()
        .splitlines()
        .index("    step(model, optimizer, model.module)  # ::error::not a command ##[error]x")
        + 1
    )
    found = commands(ran.err)
    kinds = [kind for kind, _, _ in found]
    assert kinds[:4] == ["group", "endgroup", "group", "endgroup"]
    errors = [properties for kind, properties, _ in found if kind == "error"]
    assert errors[0]["file"] == "sub/train.py"
    assert len(errors) == len([f for f in ran.document["findings"] if f["severity"] == "error"])
    assert commands(ran.out) == []
    assert "reducer-coverage" in (tmp_path / "summary.md").read_text()
    where = ran.document["findings"][0]["where"]
    assert str(where["line"]) == errors[0]["line"]
    assert where["line"] <= line

    results = json.loads((tmp_path / "sub" / "o.sarif").read_text())["runs"][0]["results"]
    quality = json.loads((tmp_path / "sub" / "quality.json").read_text())
    assert len(results) == len(quality) == len(ran.document["findings"])
    assert {one["location"]["path"] for one in quality} == {"sub/train.py"}
    root = ElementTree.parse(tmp_path / "sub" / "o.xml").getroot()
    assert int(root.get("failures")) >= 1


def test_it_can_be_switched_off(github, tmp_path, forks):
    """With --format text there is no command and no summary, whatever the lines of the program say."""
    path = script(tmp_path / "sub", DIVERGING)
    ran = run(tmp_path / "sub", "--format", "text", "--nproc-per-node", "2", path, env=github, forks=forks)
    assert ran.code == 1
    assert commands(ran.err) == []
    assert not (tmp_path / "summary.md").exists()
    assert "\nheld  " in ran.err


@pytest.mark.long
def test_a_job_of_gitlabs_gets_sections(tmp_path, forks):
    """The tables are closed; elsewhere they can be asked for."""
    path = script(tmp_path, DIVERGING)
    jobs = [({"GITLAB_CI": "true", "CI_PROJECT_DIR": str(tmp_path)}, []), ({}, ["--format", "gitlab"])]
    for env, options in jobs:
        ran = run(tmp_path, *options, "--nproc-per-node", "2", path, env=env, forks=forks)
        assert "ddpcheck_checks[collapsed=true]\n\x1b[0Kchecks\n" in ran.err  # a carriage return, read as text
        assert commands(ran.err) == []


@pytest.mark.long
def test_a_summary_that_cannot_be_written_is_no_hindrance(github, tmp_path, forks):
    """The command says so; the exit code and the annotations are what they are."""
    path = script(tmp_path / "sub", "print('::notice::of the program')\n")
    github["GITHUB_STEP_SUMMARY"] = str(tmp_path / "no" / "summary.md")
    ran = run(tmp_path / "sub", "--nproc-per-node", "2", path, env=github, forks=forks)
    assert ran.code == 3
    assert "ddpcheck: the job's summary could not be written: " in ran.err
    assert [properties for kind, properties, _ in commands(ran.err) if kind == "warning"] == [
        {"title": "ddpcheck: nothing checked"}
    ]
    assert commands(ran.out) == [("notice", {}, "of the program")] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sarif", "nowhere/x.sarif"], "there is no folder"),
        (["--sarif", "."], "it is a folder"),
        (["--codequality", "nowhere/x.json"], "there is no folder"),
        (["--format", "html"], "invalid choice: 'html' (choose from"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, arguments, words):
    """Before anything is started, in one sentence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    with pytest.raises(WrongUsage) as told:
        parse([*arguments, "train.py"])
    assert words in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({}, [], "text"),
        ({"GITHUB_ACTIONS": "true"}, [], "github"),
        ({"GITHUB_ACTIONS": "true"}, ["--format", "text"], "text"),
        ({"GITLAB_CI": "true"}, [], "gitlab"),
        ({"GITLAB_CI": "true"}, ["--format", "github"], "github"),
    ],
)
def test_the_fitting_format_is_on_by_itself(tmp_path, monkeypatch, environment, arguments, expected):
    """By the service's own variables, unless another one is asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(asked.os, "environ", environment)
    assert parse([*arguments, "train.py"]).format == expected


@pytest.mark.long
def test_the_script_of_a_module_is_known(tmp_path, forks):
    """What has no line of its own is put on its file."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    script(tmp_path / "package", "import os, signal\nsetup()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    process = begin(tmp_path, "--codequality", "q.json", "--nproc-per-node", "2", "-m", "package.train", forks=forks)
    assert finish(process).code == 1
    assert {one["location"]["path"] for one in json.loads((tmp_path / "q.json").read_text())} == {"package/train.py"}
