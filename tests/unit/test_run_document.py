"""The JSON and the JUnit XML of a run, and the files they are written to."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ddpcheck.checks.catalogue import CHECKS
from msgspec.structs import replace

from ddpcheck.report import json_report, junit_report, report_files
from ddpcheck.report.report_files import Unwritable, check_writable
from tests.unit.verdicts import AT_RISK, ERROR, HELD, HUNG, NOTHING, VIOLATED, WARNING, results

# --- JSON


def test_the_json_is_the_one_of_the_contract(tmp_path):
    """Every field that other programs rely on is there, with its name and its type."""
    path = tmp_path / "report.json"
    json_report.write(VIOLATED, path)
    told = json.loads(path.read_text())
    assert (told["schema"], told["verdict"], told["world_size"]) == (2, "violated", 2)
    assert list(told["checks"]) == list(CHECKS)
    assert told["checks"]["gradient-sync"] == {"status": "violated", "checked": 12, "skipped_because": None}
    assert told["checks"]["no-hang"] == {
        "status": "not-checked",
        "checked": 0,
        "skipped_because": "there was nothing to judge",
    }
    assert told["versions"] == {"ddpcheck": "0.1.0", "torch": "2.13.0", "python": "3.11.9"}
    assert told["ranks"][1] == {"rank": 1, "exit_code": 0, "signal": None, "host": "a"}
    finding = told["findings"][0]
    assert {name: finding[name] for name in finding if name not in ("expected", "found", "cause", "also", "proof")} == {
        "check": "reducer-coverage",
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


# --- JUnit XML


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
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.get(attribute) == str(sum(kind == tag for kind, _ in found.values()))
    return found


def test_a_check_is_a_test():
    """Held passes, violated fails, with the finding or with what it follows from, not checked is skipped."""
    found = cases(VIOLATED)
    assert list(found) == list(CHECKS)
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
    assert len(found) == len(CHECKS) + 1


def test_a_program_that_goes_down_is_an_error():
    """A hang or a failed rank is an error, and no failure of a test; so is what fails in ddpcheck itself."""
    found = cases(replace(HUNG, internal=("a judge\nraised",)))
    assert found["batch-count"][0] == "failure"
    assert found["no-hang"][0] == "error"
    assert found["ddpcheck"] == ("error", "a judge raised")


# --- files


def test_a_report_comes_whole(tmp_path):
    """A report takes the place of the one before in one move, with its permissions, and leaves nothing beside it."""
    path = tmp_path / "report.json"
    path.write_text("the one before")
    path.chmod(0o640)
    before = path.stat().st_ino
    report_files.write(path, "the new one")
    assert path.read_text() == "the new one"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    """A disk that is full takes nothing away."""
    path = tmp_path / "report.json"
    path.write_text("the one before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"cannot write .*report\.json: no space left on device"):
        report_files.write(path, "the new one")
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path):
    """A report that is asked for by way of a link goes where the link leads."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "last.json").symlink_to("runs/1.json")
    check_writable(tmp_path / "last.json")
    report_files.write(tmp_path / "last.json", "new")
    assert (tmp_path / "last.json").is_symlink()
    assert (tmp_path / "runs" / "1.json").read_text() == "new"


def test_a_link_of_somebody_elses_is_not_followed(tmp_path, monkeypatch):
    """In a folder that others may write to, a link may have been put where the report is to go."""
    (tmp_path / "mine").write_text("precious")
    link = tmp_path / "verdict.json"
    link.symlink_to("mine")
    if os.geteuid() == 0:
        os.lchown(link, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: link.lstat().st_uid + 1)
    check_writable(link)
    report_files.write(link, "report")
    assert (tmp_path / "mine").read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() == "report"


def test_no_name_beside_a_report_can_be_foreseen(tmp_path, monkeypatch):
    """What stands under a draft's name, a link say, is neither followed nor replaced."""
    (tmp_path / "mine").write_text("precious")
    monkeypatch.setattr(report_files.secrets, "token_hex", lambda size: "0" * size)
    (tmp_path / ".ddpcheck-00000000").symlink_to("mine")
    with pytest.raises(Unwritable, match="file exists"):
        report_files.write(tmp_path / "verdict.json", "report")
    assert (tmp_path / "mine").read_text() == "precious"
    monkeypatch.undo()
    drafts = set()
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda draft, target: (drafts.add(draft), rename(draft, target)))
    for _ in range(3):
        report_files.write(tmp_path / "verdict.json", "report")
    assert len(drafts) == 3


def test_permissions_are_those_of_a_new_file(tmp_path):
    """By the umask, as for any file that a program makes."""
    before = os.umask(0o027)
    try:
        report_files.write(tmp_path / "verdict.json", "report")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "verdict.json").stat().st_mode) == 0o640


def test_a_pipe_takes_a_report(tmp_path):
    """It is written to, and not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    report_files.write(pipe, "report")
    assert os.read(reading, 100) == b"report"
    os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_takes_a_report():
    """A device is written to, and not replaced."""
    check_writable(Path("/dev/null"))
    report_files.write(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_looking_leaves_nothing(tmp_path):
    """The look before the run makes no file, neither new nor changed."""
    (tmp_path / "old.json").write_text("old")
    check_writable(tmp_path / "new.json")
    check_writable(tmp_path / "old.json")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("old.json", "old")]


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    """A folder, a missing one, a file in the way: each is told by its name and its reason."""
    (tmp_path / "file").write_text("")
    for path, reason in [
        (tmp_path, "it is a folder"),
        (tmp_path / "missing" / "r.json", f"there is no folder {tmp_path / 'missing'}"),
        (tmp_path / "file" / "r.json", "not a directory"),
        (tmp_path / ("n" * 300), "file name too long"),
    ]:
        with pytest.raises(Unwritable) as caught:
            check_writable(path)
        assert str(caught.value) == f"cannot write {path}: {reason}"
    with pytest.raises(Unwritable, match=r"cannot write /proc/r\.json: "):  # where root's permissions say otherwise
        check_writable(Path("/proc/r.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_permissions_are_looked_at(tmp_path):
    """A file or a folder without permission is refused."""
    (tmp_path / "r.json").write_text("")
    (tmp_path / "r.json").chmod(0o400)
    with pytest.raises(Unwritable, match="there is no permission to"):
        check_writable(tmp_path / "r.json")
    tmp_path.chmod(0o500)
    with pytest.raises(Unwritable, match="permission denied"):
        check_writable(tmp_path / "new.json")
