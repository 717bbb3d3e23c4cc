"""The module that a finding's parameter belongs to, in every report; where nothing is known of it, in none."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone

import pytest
from msgspec.structs import replace

from ddpcheck.report import finding_module, json_report, junit_report, sarif_report, terminal_report
from ddpcheck.report.finding_text import text_of
from ddpcheck.report.page.page import html
from ddpcheck.report.repository_paths import Repository
from ddpcheck.vocabulary.model import ModelPart
from tests.report.schema_validation import validate
from tests.report.verdicts import ACCEPTED, ERROR, VIOLATED, site

CONSTRUCTOR = site(41, "__init__", "model.py")
HELPER = replace(site(9, "linear", "layers.py"), caller=CONSTRUCTOR)
Q = ModelPart(path="layers.3.attn.q", kind="Linear", within="Attention", set_by=CONSTRUCTOR)
FINDING = replace(ERROR, subject="layers.3.attn.q.bias", module=Q)
CODE = "self.q = nn.Linear(dim, dim)"
VERDICT = replace(VIOLATED, findings=(FINDING,), lines={**VIOLATED.lines, "model.py:41": CODE})
TOLD = "layers.3.attn.q (Linear, in Attention), set by model.py:41 in __init__"


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, TOLD),
    ({"within": ""}, "layers.3.attn.q (Linear), set by model.py:41 in __init__"),
    ({"path": "", "within": ""}, "the Linear, set by model.py:41 in __init__"),
    ({"kind": "", "within": ""}, "layers.3.attn.q, set by model.py:41 in __init__"),
    ({"set_by": HELPER},
     "layers.3.attn.q (Linear, in Attention), set by __init__ (model.py:41) → linear (layers.py:9)"),
    ({"set_by": None, "defined": site(35, "__init__", "model.py")},
     "layers.3.attn.q (Linear, in Attention); Attention's constructor is at model.py:35"),
    ({"set_by": None, "within": "", "defined": site(35, "__init__", "model.py")},
     "layers.3.attn.q (Linear); Linear's constructor is at model.py:35"),
    ({"set_by": None}, "layers.3.attn.q (Linear, in Attention)"),
    ({"set_by": None, "within": "", "path": ""}, ""),
])  # fmt: skip
def test_in_words(changes, expected):
    assert finding_module.told(replace(FINDING, module=replace(Q, **changes))) == expected


def test_the_line_that_names_it():
    assert finding_module.line(FINDING) == CONSTRUCTOR
    assert finding_module.line(replace(FINDING, module=replace(Q, set_by=HELPER))) == CONSTRUCTOR
    assert finding_module.line(replace(FINDING, module=None)) is None


def terminal(verdict, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    stream = io.StringIO()
    terminal_report.show(verdict, stream)
    return stream.getvalue()


def sarif(verdict, folder):
    log = sarif_report.document(verdict, Repository(str(folder), str(folder), "train.py"), datetime.now(timezone.utc))
    return log["runs"][0]["results"][0]


def test_on_the_terminal(monkeypatch):
    text = terminal(VERDICT, monkeypatch)
    assert f"module    {TOLD}\n             {CODE}\n" in text
    assert "module  " not in terminal(VIOLATED, monkeypatch)
    same = replace(FINDING, where=CONSTRUCTOR)  # the finding's own line is shown above
    assert terminal(replace(VERDICT, findings=(same,)), monkeypatch).count(CODE) == 1


def test_as_text():
    assert f"\n  module    {TOLD}\n" in text_of([FINDING])
    assert TOLD in junit_report.junit(VERDICT)
    assert "module  " not in text_of([ERROR])


def test_in_the_json():
    document = json.loads(json.dumps(json_report.document(VERDICT)))
    validate(document, "run")
    assert document["findings"][0]["module"] == {
        "path": "layers.3.attn.q", "class": "Linear", "within": "Attention", "defined": None,
        "set_by": [{"file": "model.py", "line": 41, "function": "__init__", "text": CODE}],
    }  # fmt: skip
    assert all("module" not in one for one in json_report.document(VIOLATED)["findings"])


def test_in_the_json_of_an_accepted_finding():
    accepted = replace(ACCEPTED, accepted=(replace(ACCEPTED.accepted[0], finding=FINDING),))
    document = json_report.document(accepted)
    validate(document, "run")
    assert document["accepted"][0]["module"]["path"] == "layers.3.attn.q"


def test_in_sarif(tmp_path):
    found = sarif(VERDICT, tmp_path)
    assert found["properties"]["module"] == TOLD
    related = found["relatedLocations"][-1]
    assert related["message"]["text"] == TOLD
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "model.py"
    assert related["physicalLocation"]["region"] == {"startLine": 41, "snippet": {"text": CODE}}
    assert "module" not in sarif(VIOLATED, tmp_path)["properties"]


def test_on_the_page():
    page = html(VERDICT)
    assert f"<dt>module</dt><dd>{TOLD}</dd>" in page
    assert "The line that has made the module" in page
    assert "<dt>module</dt>" not in html(VIOLATED)
