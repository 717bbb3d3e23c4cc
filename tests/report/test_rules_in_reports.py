"""Rules and advisories in every report, and in the texts of the checks."""

from __future__ import annotations

import io
import json

import pytest
from msgspec.structs import replace

from ddpcheck import cli
from ddpcheck.report import (
    code_quality_report,
    github_annotations,
    job_summary,
    json_report,
    junit_report,
    sarif_report,
    terminal_report,
)
from ddpcheck.report.explanations import nearest, text_of_check, text_of_rule, unknown
from ddpcheck.report.page import page
from ddpcheck.report.repository_paths import Repository
from tests.registered_rules import CLIPPED, NAMED, register
from tests.report.schema_validation import validate
from tests.report.test_sarif_report import ENDED
from tests.report.verdicts import ACCEPTED, ERROR, SCRIPT, VIOLATED, WARNING

RULE = "reducer-coverage/clipped-alone"
RULED = replace(ERROR, rule=RULE)
ADVISORY = replace(
    WARNING, check="reducer-coverage", rule="reducer-coverage/named-alike", severity="advisory", subject="net.w"
)
FOUND = replace(VIOLATED, findings=(RULED, *VIOLATED.findings[1:]))
ADVISED = replace(FOUND, advisories=(ADVISORY,))


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    register(monkeypatch, "reducer-coverage", CLIPPED, NAMED)


@pytest.fixture
def here(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return Repository(str(tmp_path), str(tmp_path), "train.py")


def shown(verdict):
    stream = io.StringIO()
    terminal_report.show(verdict, stream)
    return stream.getvalue()


def test_a_headline_has_the_rule():
    """On the terminal, the page, and what services show of a finding; one without a rule has its check."""
    assert f"1. error  {RULE}  the wrapper of Net" in shown(FOUND)
    assert "2. warning  checkpoint-atomic-save  /checkpoints" in shown(FOUND)
    assert f"{RULE}: the wrapper of Net</h3>" in page.html(FOUND)


def test_services_show_the_rule(here):
    assert f"title={RULE}".replace(":", "%3A") in github_annotations.annotation_commands(FOUND, here)[0]
    entry = code_quality_report.document(FOUND, here)[0]
    assert (entry["check_name"], entry["description"].partition(":")[0]) == (RULE, RULE)
    assert f"<code>{RULE}</code>" in job_summary.markdown(FOUND, here, "")
    assert f"rule      {RULE}" in junit_report.junit(FOUND)


def test_sarif_has_rules_of_its_own(here):
    """Named and described as such, with the check's text as help; what alerts are known by stays as it was."""
    run, before = (sarif_report.document(verdict, here, ENDED)["runs"][0] for verdict in (FOUND, VIOLATED))
    result = run["results"][0]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert result["ruleId"] == rule["id"] == RULE
    assert rule["shortDescription"]["text"] == "A rank clips its gradients, and others do not."
    assert rule["help"]["markdown"] == text_of_check("reducer-coverage")
    known = [[one["partialFingerprints"] for one in run["results"]] for run in (run, before)]
    assert known[0] == known[1]


def test_rules_in_the_json():
    """With the check's id before it; what is accepted has one, too."""
    accepted = replace(ACCEPTED.accepted[0], finding=RULED)
    document = json_report.document(replace(FOUND, accepted=(accepted,)))
    assert [one["rule"] for one in document["findings"]] == [RULE, None]
    assert document["accepted"][0]["rule"] == RULE
    validate(json.loads(json.dumps(document)), "run")


def test_advisories_are_shown_apart_where_they_are_asked_for(here):
    """In a list of their own in terminal, JSON and page; nowhere else."""
    document = json_report.document(ADVISED)
    assert [(one["rule"], one["severity"]) for one in document["advisories"]] == [(ADVISORY.rule, "advisory")]
    validate(json.loads(json.dumps(document)), "run")
    assert "advisories" not in json_report.document(FOUND)
    told = shown(ADVISED)
    assert told.index("advisories (they do not count)") > told.index("2. warning")
    assert "1. advisory  reducer-coverage/named-alike  net.w" in told
    assert ADVISORY.rule in page.html(ADVISED)
    assert "they do not count" not in shown(FOUND) + page.html(FOUND)
    assert "they do not count" in page.html(ADVISED)
    for verdict in (FOUND, ADVISED):
        assert ADVISORY.rule not in junit_report.junit(verdict) + job_summary.markdown(verdict, here, "")
        assert ADVISORY.rule not in str(sarif_report.document(verdict, here, ENDED))
        assert ADVISORY.rule not in str(github_annotations.annotation_commands(verdict, here))


def test_rules_are_listed_and_explained(capsys):
    """Below their check, each with what it says; an explained rule comes before its check's text."""
    assert cli.main(["checks"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert "/clipped-alone a rank clips its gradients, and others do not" in listed
    assert "/named-alike two parameters have names alike (advisory)" in listed
    assert cli.main(["explain", RULE]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{RULE}\n\nA rank clips its gradients, and others do not.\n")
    assert "dvisory" not in told.partition("Why it matters")[0]
    assert "Why it matters" in told
    assert "An advisory: `--advise` shows it" in text_of_rule("reducer-coverage/named-alike")


@pytest.mark.parametrize("command", [["explain"], ["run", "--skip"], ["run", "--checks"]])
def test_an_unknown_rule_is_answered_with_the_nearest(tmp_path, command, capsys):
    wrong = "reducer-coverage/cliped-alone"
    (tmp_path / "train.py").touch()
    assert cli.main([*command, wrong, *([str(tmp_path / "train.py")] if command[0] == "run" else [])]) == 2
    assert f"there is no rule '{wrong}': did you mean {RULE}?" in capsys.readouterr().err


def test_the_nearest_may_be_the_check():
    assert nearest("reducer-coverage/qqq") == "reducer-coverage"
    assert "there is no check 'reducer-coverge/clipped-alone': did you mean" in unknown("reducer-coverge/clipped-alone")
