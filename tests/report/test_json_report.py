"""The JSON of a run."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from ddpcheck.report import json_report, junit_report
from tests.report.verdicts import ACCEPTED, AT_RISK, HELD, HUNG, NOTHING, VIOLATED, WARNING


def test_the_json_is_the_one_of_the_contract(tmp_path):
    """Every field that other programs rely on is there, with its name and its type."""
    path = tmp_path / "report.json"
    json_report.write(VIOLATED, path)
    told = json.loads(path.read_text())
    assert (told["schema"], told["verdict"], told["world_size"]) == (3, "violated", 2)
    assert list(told["checks"]) == list(VIOLATED.checks)
    assert told["checks"]["gradient-sync"] == {
        "status": "violated",
        "checked": 12,
        "coverage": {"compared": 12, "of": 36, "unit": "windows"},
        "skipped_because": None,
    }
    assert told["checks"]["no-hang"] == {
        "status": "not-checked",
        "checked": 0,
        "coverage": {"compared": 0, "of": 0, "unit": "times"},
        "skipped_because": "there was nothing to judge",
    }
    assert told["versions"] == {"ddpcheck": "0.1.0", "torch": "2.13.0", "python": "3.11.9"}
    assert told["ranks"][1] == {"rank": 1, "exit_code": 0, "signal": None, "host": "a"}
    finding = told["findings"][0]
    assert {
        name: finding[name] for name in finding if name not in ("chain", "expected", "found", "cause", "also", "proof")
    } == {
        "check": "reducer-coverage",
        "rule": None,
        "severity": "error",
        "ranks": [0, 1],
        "step": 0,
        "subject": "the wrapper of Net",
        "message": (
            "Expected a forward through the wrapper before every step. Found none before 12 of 12 steps. "
            "Likely cause: the loss came from `.module`."
        ),
        "where": {"file": "train.py", "line": 5, "function": "train"},
        "count": 12,
        "advice": "Call model(x), and not model.module(x).",
    }
    assert finding["also"] == ["gradient-sync", "parameter-sync"]
    assert finding["proof"][1] == {"rank": 1, "file": "train.py", "line": 6, "function": "train"}
    assert (told["findings"][1]["where"], told["findings"][1]["cause"]) == (None, None)


@pytest.mark.parametrize("verdict", [HELD, HUNG, NOTHING])
def test_every_verdict_has_its_json(verdict):
    """Ranks that stand still, and a run without findings, are plain data too."""
    told = json.loads(json.dumps(json_report.document(verdict)))
    assert told["verdict"] == verdict.verdict
    assert len(told["findings"]) == len(verdict.findings)
    if verdict is HUNG:
        assert told["hang"]["stands"][0]["pending"]["op"] == "ddp-gradients"
        assert told["hang"]["parted"]["calls"]["3"] is None


def test_names_that_are_no_text_can_be_written(tmp_path):
    """A path that is not UTF-8 on disk ends up in the files in some form, and breaks neither."""
    odd = replace(AT_RISK, findings=(replace(WARNING, subject="last\udce9\x00.pt"),))
    json_report.write(odd, tmp_path / "report.json")
    assert "last" in json.loads((tmp_path / "report.json").read_text())["findings"][0]["subject"]
    junit_report.write(odd, tmp_path / "report.xml", strict=True)
    failure = ElementTree.parse(tmp_path / "report.xml").find(".//failure")
    assert r"last\xdce9\x00.pt" in failure.get("message")


def test_accepted_findings_stand_beside_the_others():
    """In full, with who accepts them, where and why; a check counts those that concern it, where there are any."""
    told = json_report.document(ACCEPTED)
    assert told["findings"] == []
    first, second = told["accepted"]
    assert (first["check"], first["by"], first["source"], first["reason"]) == (
        "reducer-coverage",
        "comment",
        "comment in train.py:5",
        "the loss is the teacher's",
    )
    assert first["where"] == {"file": "train.py", "line": 5, "function": "train"}
    assert (second["severity"], second["by"], second["reason"]) == ("warning", "baseline", None)
    assert told["checks"]["gradient-sync"] == {
        "status": "at-risk",
        "checked": 12,
        "coverage": {"compared": 12, "of": 36, "unit": "windows"},
        "skipped_because": None,
        "accepted": 1,
    }
    assert "accepted" not in told["checks"]["initial-broadcast"]
    assert json_report.document(HELD)["accepted"] == []
