"""A run while it goes on: findings come as they are certain, one can end it, and what a kill leaves is judged."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import sys

import psutil
import pytest
from running import begin, finish, run, script

from ddpcheck.evidence import FULL, HEADER
from tests import progress

TRAINS = """
model, optimizer = setup()
until = os.environ["UNTIL"]
for number in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    if number >= 3 and os.environ.get("FAULT") and dist.get_rank() == 1:
        model.module.weight.grad.mul_(2)
    optimizer.step()
    time.sleep(0.01)
    if number == 5:
        open(f"ready{dist.get_rank()}", "w").close()
    done = torch.tensor([float(os.path.exists(until))])
    dist.all_reduce(done)
    if done:
        break
print("trained to the end", flush=True)
dist.destroy_process_group()
"""
"""Trains until there is a file, which all ranks see at the same step."""

IN_PLACE = TRAINS.replace(
    "    if number == 5:",
    """    if not dist.get_rank():
        torch.save(model.state_dict(), "last.pt")
    if number == 5:""",
)
"""Is at risk, and no more."""


@pytest.fixture
def begun(tmp_path, forks):
    """Start a training, and wait until it has made some steps."""
    started = []

    def start(*options, fault=False, body=TRAINS, **env):
        env |= {"UNTIL": str(tmp_path / "enough")}
        process = begin(
            tmp_path, "--json", tmp_path / "verdict.json", "--nproc-per-node", "2", *options,
            script(tmp_path, body), env={**env, **({"FAULT": "1"} if fault else {})}, forks=forks,
            errors=tmp_path / "errors",
        )  # fmt: skip
        started.append(process)
        wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)), process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def ended(folder, process):
    """What came of it, with what it wrote to stderr."""
    ran = finish(process, folder / "verdict.json")
    return dataclasses.replace(ran, err=(folder / "errors").read_text())


def wait_for(condition, process):
    def is_met():
        assert process.poll() is None, process.communicate()
        return condition()

    progress.wait_for(is_met, process)


def test_a_finding_is_told_while_the_run_goes_on(tmp_path, begun):
    """In a line; the report has it in full, and its end tells of it in a line again."""
    process = begun(fault=True)
    wait_for(lambda: "into the run" in (tmp_path / "errors").read_text(), process)
    (tmp_path / "enough").touch()
    ran = ended(tmp_path, process)
    assert (ran.code, ran.found) == (1, ["gradient-sync"])
    assert "trained to the end" in ran.out
    (told,) = [line for line in ran.err.splitlines() if "into the run" in line]
    assert re.search(r"into the run: \S+\.py:\d+  error  gradient-sync/different-gradients  ", told)
    assert ran.err.count("fix       ") == ran.err.count("in <module>") == 1
    line, verdict = ran.err.splitlines()[-2:]
    assert re.fullmatch(r"\S+\.py:\d+  error  gradient-sync/different-gradients  .+", line)
    assert verdict == "VIOLATED  1 error, exit code 1"
    assert ran.document["findings"][0]["step"] == 3


def test_an_error_ends_the_run_if_it_is_to(begun, tmp_path):
    """What ranks do for that is no finding, and no process stays."""
    process = begun("--fail-fast", fault=True)
    family = psutil.Process(process.pid).children(recursive=True)
    ran = ended(tmp_path, process)
    assert (ran.code, ran.document["verdict"], ran.found) == (1, "violated", ["gradient-sync"])
    assert "trained to the end" not in ran.out
    assert "the run is ended (--fail-fast)" in ran.err
    assert any("--fail-fast" in note for note in ran.document["notes"])
    assert [one for one in family if one.is_running() and one.status() != "zombie"] == []


def test_what_is_right_goes_on_to_its_end(begun, tmp_path):
    process = begun("--fail-fast", TESTS_STATUS="0.2")
    wait_for(lambda: "checks held so far" in (tmp_path / "errors").read_text(), process)
    (tmp_path / "enough").touch()
    ran = ended(tmp_path, process)
    assert (ran.code, ran.document["verdict"]) == (0, "held")
    assert "into the run" not in ran.err


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.few(1)
def test_a_warning_ends_it_where_warnings_count(begun, tmp_path, strict):
    process = begun("--fail-fast", *(["--strict"] if strict else []), body=IN_PLACE)
    wait_for(lambda: "into the run" in (tmp_path / "errors").read_text(), process)
    if not strict:
        (tmp_path / "enough").touch()
    ran = ended(tmp_path, process)
    assert ran.code == int(strict)
    assert ("trained to the end" in ran.out) == (not strict)


def judged(folder, *arguments, **env):
    """``ddpcheck judge`` in a folder: the exit code, what it printed, and the document."""
    target = folder / "judged.json"
    command = [sys.executable, "-m", "ddpcheck.cli", "judge", *map(str, arguments), "--json", str(target)]
    ran = progress.run(command, cwd=folder, env={**os.environ, **env}, text=True)
    return ran.returncode, ran.stderr, json.loads(target.read_text()) if target.exists() else None


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.few(1)
def test_what_a_killed_command_has_left_is_judged(begun, tmp_path, kept):
    """What was found until then; and nothing for the kill itself, nor for how the ranks end after it."""
    (tmp_path / "temporary").mkdir()
    place = {"TMPDIR": str(tmp_path / "temporary")}
    process = begun(*(["--evidence", tmp_path / "kept"] if kept else []), fault=True, **place)
    family = psutil.Process(process.pid).children(recursive=True)
    if kept:
        code, told, _ = judged(tmp_path, tmp_path / "kept")
        assert code == 2
        assert "goes on" in told
    os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(family, timeout=60)
    process.communicate()  # closes its pipes
    code, told, document = judged(tmp_path, *([tmp_path / "kept"] if kept else []), **place)
    assert code == 1, told
    assert [finding["check"] for finding in document["findings"]] == ["gradient-sync"], told
    assert (document["verdict"], document["interrupted_by"]) == ("interrupted", "SIGKILL")
    assert "ddpcheck itself was killed" in " ".join(told.split())


def test_kept_evidence_is_judged_again_as_it_was(tmp_path, forks):
    """All of the verdict is the same, and with other options another one."""
    (tmp_path / "enough").touch()
    body = script(tmp_path, TRAINS.replace("number >= 3", "number >= 0"))
    env = {"UNTIL": str(tmp_path / "enough"), "FAULT": "1"}
    ran = run(tmp_path, "--nproc-per-node", "2", "--evidence", tmp_path / "kept", body, env=env, forks=forks)
    code, told, document = judged(tmp_path, tmp_path / "kept")
    assert code == ran.code == 1
    assert document == ran.document
    code, told, document = judged(tmp_path, tmp_path / "kept", "--checks", "batch-count")
    assert (code, document["findings"]) == (3, []), told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["."], "there is no evidence in ."),
        ([], "no run has left evidence in"),
        (["--wrong"], "unrecognized arguments: --wrong"),
        ([".", "--checks", "no-such-check"], "no-such-check"),
    ],
)
@pytest.mark.few(1)
def test_what_cannot_be_judged_is_said_in_a_sentence(tmp_path, arguments, words):
    code, told, document = judged(tmp_path, *arguments, TMPDIR=str(tmp_path))
    assert (code, document) == (2, None)
    assert words in told
    assert len(told.strip().splitlines()) == 1


def test_evidence_without_a_record_is_nothing_to_judge(tmp_path):
    """As of a disk that was full from the beginning."""
    (tmp_path / "host-1-1.evidence").write_bytes(HEADER + FULL)
    code, told, document = judged(tmp_path, ".")
    assert (code, document) == (2, None)
    assert "nothing on record" in told
