"""The JUnit XML of a run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from msgspec.structs import replace

from ddpcheck.report import junit_report
from tests.report.verdicts import ACCEPTED, AT_RISK, ERROR, HUNG, VIOLATED, WARNING, results

TIME = r"\d+\.\d{3}"
ATTRIBUTES = {
    "testsuites": {"name": ".*", "tests": r"\d+", "failures": r"\d+", "errors": r"\d+", "time": TIME},
    "testsuite": {
        "name": ".+",
        "tests": r"\d+",
        "failures": r"\d+",
        "errors": r"\d+",
        "skipped": r"\d+",
        "time": TIME,
        "hostname": ".+",
        "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+00:00)?",
    },
    "properties": {},
    "property": {"name": ".+", "value": ".*"},
    "testcase": {"classname": ".+", "name": ".+", "time": r"\d+(\.\d+)?"},
    **{ending: {"type": ".+", "message": ".*"} for ending in ("failure", "error", "skipped")},
    "system-out": {},
}
CHILDREN = {
    "testsuites": "(testsuite )*",
    "testsuite": "properties (testcase )*",
    "properties": "(property )*",
    "testcase": "((failure|error|skipped) )?(system-out )?",
}
"""What Jenkins, Surefire, GitLab and GitHub's actions agree upon: elements, their order and their attributes."""


def assert_common(element):
    """An element of the XML, and all below it, is one that every reader of JUnit XML knows."""
    assert re.fullmatch(CHILDREN.get(element.tag, ""), "".join(f"{child.tag} " for child in element)), element.tag
    known = ATTRIBUTES[element.tag]
    assert set(known) - {"timestamp"} <= set(element.attrib) <= set(known), element.tag
    for name, value in element.attrib.items():
        assert re.fullmatch(known[name], value), (element.tag, name, value)
    for child in element:
        assert_common(child)


def cases(verdict, **more):
    """By name: what a test of the list ended as, and what stands with it."""
    root = ElementTree.fromstring(junit_report.junit(verdict, **more))
    found = {}
    for case in root.iter("testcase"):
        endings = [child for child in case if child.tag in ("failure", "error", "skipped")]
        assert len(endings) <= 1
        found[case.get("name")] = (endings[0].tag, endings[0].get("message")) if endings else ("passed", "")
    suite = root.find("testsuite")
    for element in (root, suite):
        assert element.get("tests") == str(len(found))
        for attribute, tag in (("failures", "failure"), ("errors", "error")):
            assert element.get(attribute) == str(sum(kind == tag for kind, _ in found.values()))
    assert suite.get("skipped") == str(sum(kind == "skipped" for kind, _ in found.values()))
    assert_common(root)
    return found


def test_a_check_is_a_test():
    """Held passes, violated fails, with the finding or with what it follows from, not checked is skipped."""
    found = cases(VIOLATED)
    assert list(found) == list(VIOLATED.checks)
    assert found["initial-broadcast"] == ("passed", "")
    assert found["reducer-coverage"] == (
        "failure",
        "ranks 0 and 1: the wrapper of Net: none before 12 of 12 steps",
    )
    assert found["gradient-sync"] == (
        "failure",
        "violated as a consequence of reducer-coverage: the wrapper of Net",
    )
    assert found["no-hang"] == ("skipped", "there was nothing to judge")


def test_a_warning_fails_only_if_the_command_does():
    """What leaves the exit code at 0 leaves the list of tests green."""
    assert cases(AT_RISK)["checkpoint-atomic-save"] == ("passed", "")
    assert "torch.save onto a path that held one" in junit_report.junit(AT_RISK)
    assert cases(AT_RISK, strict=True)["checkpoint-atomic-save"][0] == "failure"
    follows = replace(AT_RISK, findings=(replace(WARNING, also=("rng-independence",)),))
    follows = replace(follows, checks=results(rng_independence=("at-risk", 1)))
    assert cases(follows)["rng-independence"] == ("passed", "")
    assert cases(follows, strict=True)["rng-independence"][0] == "failure"


def test_each_finding_is_a_test_of_its_own():
    """Readers that look at one failure of a test see every finding."""
    found = cases(replace(VIOLATED, findings=(ERROR, replace(ERROR, subject="another"))))
    assert found["reducer-coverage"][1].startswith("ranks 0 and 1: the wrapper of Net")
    assert found["reducer-coverage [2]"][1].startswith("ranks 0 and 1: another")
    assert len(found) == len(VIOLATED.checks) + 1


def test_a_program_that_goes_down_is_an_error():
    """A hang or a failed rank is an error, and no failure of a test; so is what fails in ddpcheck itself."""
    found = cases(replace(HUNG, internal=("a judge\nraised",)))
    assert found["batch-count"][0] == "failure"
    assert found["no-hang"][0] == "error"
    assert found["ddpcheck"] == ("error", "a judge raised")


def test_the_file_says_when_the_run_began(tmp_path):
    """And where: what reports of several jobs are sorted by."""
    junit_report.write(VIOLATED, tmp_path / "report.xml")
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert_common(root)
    assert root.find("testsuite").get("hostname") == "a"
    assert root.find("testsuite").get("timestamp") is not None


def test_what_is_accepted_passes():
    """With ``strict`` as well, and with the reason; other findings of the same check fail it all the same."""
    for strict in (False, True):
        found = cases(ACCEPTED, strict=strict)
        for check in ("reducer-coverage", "gradient-sync", "checkpoint-atomic-save"):
            assert found[check] == ("passed", "")
    text = junit_report.junit(ACCEPTED)
    assert text.count("train.py:5 in train: the loss is the teacher's (comment in train.py:5)") == 2
    assert '<property name="accepted" value="2" />' in text
    both = replace(VIOLATED, accepted=ACCEPTED.accepted[:1])
    root = ElementTree.fromstring(junit_report.junit(both))
    (case,) = [case for case in root.iter("testcase") if case.get("name") == "reducer-coverage"]
    assert case.find("failure") is not None
    assert "the loss is the teacher's" in case.findtext("system-out")
    assert cases(both)["gradient-sync"][0] == "failure"
