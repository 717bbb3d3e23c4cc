"""GitLab's Code Quality report."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from ddpcheck.report import code_quality_report
from ddpcheck.report.repository_paths import Repository
from tests.report.every_ending import ENDINGS
from tests.report.verdicts import ERROR, VIOLATED

HERE = Repository("/repository", "/repository/sub", "train.py")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_entry_has_what_gitlab_asks_for(ending, strict):
    """A description, the check, a fingerprint of its own, a severity, a relative path and a line."""
    verdict = ENDINGS[ending]
    found = json.loads(json.dumps(code_quality_report.document(verdict, HERE, strict)))
    assert len(found) == len(verdict.findings)
    assert len({one["fingerprint"] for one in found}) == len(found)
    for one in found:
        assert set(one) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert one["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert one["location"]["lines"]["begin"] >= 1
        assert not one["location"]["path"].startswith(("/", "./", ".."))
        json.dumps(one, ensure_ascii=False).encode()


def test_an_entry_says_it_all():
    """GitLab shows the description, and nothing else of it."""
    error, warning = code_quality_report.document(VIOLATED, HERE)
    assert error["location"] == {"path": "sub/train.py", "lines": {"begin": 5}}
    assert error["description"] == (
        "reducer-coverage: the wrapper of Net (all ranks, first at step 0, 12 times): Expected a forward through the "
        "wrapper before every step. Found none before 12 of 12 steps. Likely cause: the loss came from `.module`. "
        "Fix: Call model(x), and not model.module(x)."
    )
    assert (error["severity"], warning["severity"]) == ("critical", "minor")
    assert code_quality_report.document(VIOLATED, HERE, strict=True)[1]["severity"] == "major"
    stopped = replace(VIOLATED, findings=(replace(ERROR, check="no-hang"),))
    assert code_quality_report.document(stopped, HERE)[0]["severity"] == "blocker"


def test_a_line_outside_of_the_repository_is_in_the_words():
    """The entry itself is put on the script."""
    (one,) = code_quality_report.document(ENDINGS["outside"], HERE)
    assert one["location"] == {"path": "sub/train.py", "lines": {"begin": 1}}
    assert " at /elsewhere/loop.py:7 in train: " in one["description"]


def test_a_run_without_findings_is_an_empty_report(tmp_path):
    """So that GitLab sees what has been resolved."""
    code_quality_report.write(ENDINGS["held"], tmp_path / "quality.json", HERE)
    assert json.loads((tmp_path / "quality.json").read_text()) == []
