"""The schemas themselves, and the reports of every ending."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from ddpcheck import cli
from ddpcheck.judging.standstill import Parted, Passed, Stand, Standstill
from ddpcheck.report import json_report
from ddpcheck.report.published_schemas import NAMES, schema_text
from ddpcheck.vocabulary.model import CallSite, CheckRun, Finding
from tests.report.every_ending import ENDINGS
from tests.report.schema_validation import validate
from tests.report.verdicts import VIOLATED

OPTIONAL = {"accepted", "advisories", "module"}
"""Fields that are not always there: what other programs compare as a whole has no others."""


def objects(schema: Any) -> list[dict[str, Any]]:
    """All descriptions of objects with fields of their own."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema] if isinstance(schema, dict) and "properties" in schema and schema.get("type") == "object" else []
    return own + [found for one in inner for found in objects(one)]


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_says_all_of_every_field(name):
    """It is one, each field is described, and is always there; what a later version adds does not break its readers."""
    schema = json.loads(schema_text(name))
    Draft202012Validator.check_schema(schema)
    assert len(objects(schema)) > 5
    for one in objects(schema):
        assert set(one["properties"]) - set(one["required"]) <= OPTIONAL
        assert set(one["required"]) <= set(one["properties"])
        assert "additionalProperties" not in one
        for field, its in one["properties"].items():
            assert "$ref" in its or its.get("description"), field


WAYS = {("tests", CallSite): {"caller", "through"}, ("run", CallSite): {"caller", "through"},
        ("tests", Finding): {"chain"}}  # fmt: skip
"""How the program came to a line is in a list of its own in the report of a run, and in that of tests nowhere."""


@pytest.mark.parametrize(
    ("name", "part", "kind"),
    [
        ("tests", "finding", Finding),
        ("tests", "assertion", CheckRun),
        ("tests", "place", CallSite),
        ("run", "place", CallSite),
        ("run", "standstill", Standstill),
        ("run", "stand", Stand),
        ("run", "parted", Parted),
        ("run", "call", Passed),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_values_that_stand_in_a_report_as_they_are_have_its_fields(name, part, kind):
    """A field that a type is given is one of the schema, too."""
    fields = {field.encode_name for field in msgspec.structs.fields(kind)} - WAYS.get((name, kind), set())
    assert fields == set(json.loads(schema_text(name))["$defs"][part]["properties"])


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_report_of_every_ending_is_as_described(ending):
    """Also as it stands in the file."""
    verdict = replace(ENDINGS[ending], versions=VIOLATED.versions)
    validate(json.loads(json.dumps(json_report.document(verdict))), "run")


@pytest.mark.parametrize(
    "change",
    [
        {"new": 1},
        {"verdict": "fine"},
        {"steps": None},
        {"findings": [{}]},
        {"versions": {"ddpcheck": None, "torch": None, "python": None, "jax": None}},
    ],
    ids=str,
)
def test_a_report_that_differs_is_seen(change):
    """What the suite holds reports to is strict."""
    with pytest.raises(AssertionError, match="differ"):
        validate({**json_report.document(VIOLATED), **change}, "run")


def test_readers_of_the_published_schema_are_not_broken_by_a_new_field():
    """Only the suite's own copy forbids it."""
    Draft202012Validator(json.loads(schema_text("run"))).validate({**json_report.document(VIOLATED), "new": 1})


def test_the_command_prints_them(capsys):
    """By the name of the report; anything else is answered with the names."""
    for name in NAMES:
        assert cli.main(["schema", name]) == 0
        assert capsys.readouterr().out == schema_text(name)
    for wrong in (["schema"], ["schema", "junit"], ["schema", "run", "tests"]):
        assert cli.main(wrong) == 2
        told = capsys.readouterr().err
        assert told == "ddpcheck schema: name one report: run (ddpcheck run --json) or tests (pytest --ddp-report)\n"
