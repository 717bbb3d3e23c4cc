"""Holds reports to their published schemas, and lets nothing stand in them that the schemas do not know."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from typing import Any

from ddpcheck.report.published_schemas import schema_text


def validate(document: Any, name: str, part: str = "") -> None:
    """Fail for a report that its schema does not describe to the last field; ``part`` names one of the definitions."""
    if find_spec("jsonschema") is None:
        return  # on a machine with GPUs, which has what the tests there need; elsewhere the suite asks for it
    found = _validator(name, part).iter_errors(document)
    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in found]
    assert not errors, f"the report and its schema ({name}) differ:\n" + "\n".join(errors[:10])


def validate_facts(facts: dict[str, Any]) -> None:
    """The same for what a single report of pytest carries of a test."""
    validate({"nodeid": "a test", "outcome": "passed", **facts}, "tests", "test")


@cache
def _validator(name: str, part: str) -> Any:
    from jsonschema import Draft202012Validator

    schema = closed(json.loads(schema_text(name)))
    return Draft202012Validator({"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]} if part else schema)


def closed(schema: Any) -> Any:
    """A schema whose objects have the fields that it names and no others; users' own copy lets later ones pass."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found
