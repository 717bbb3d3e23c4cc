"""Recordings: programs are run once, evidence of another kind is refused, and a matrix that differs is an error."""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpcheck.checks.registry import checks
from ddpcheck.verdict.verdict import CheckResult, Verdict
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.recordings import assertions, devices, matrix, store, trainers
from tests.recordings.catalogue import DEVICE, FIXTURES, ROOT, everything
from tests.recordings.recorder import STEADILY

PROGRAM = "checks/gradient_sync/faulty"


def replay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "tests.recordings.replay", *arguments)


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; from tests.recordings import matrix, store; from pathlib import Path; \
store.STORE = Path({str(folder)!r}); matrix.MATRIX = store.STORE / 'matrix.txt'; \
import {module} as it; sys.exit(it.main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_program_is_recorded_and_judged_again(tmp_path):
    """Its evidence gives the same lines each time; the first matrix differs from none, the second does not."""
    refused = replay(tmp_path, PROGRAM)
    assert (refused.returncode, refused.stdout) == (1, f"{PROGRAM} was not recorded: run nox -s record\n")
    recorded = run(tmp_path, "tests.recordings.record", PROGRAM)
    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    first, second = replay(tmp_path, PROGRAM), replay(tmp_path, PROGRAM)
    assert (first.returncode, second.returncode) == (1, 0), first.stderr
    assert f"+{PROGRAM} | gradient-sync/" in first.stdout
    assert "the matrix is as it was" in second.stdout
    written = (tmp_path / "matrix.txt").read_text()
    (tmp_path / "matrix.txt").write_text(written.replace(" | error | ", " | warning | "))
    checked = replay(tmp_path, "--check", PROGRAM)
    assert checked.returncode == 1
    assert f"-{PROGRAM} | gradient-sync/" in checked.stdout
    assert " | warning | " in (tmp_path / "matrix.txt").read_text()


UNWRITTEN = """
import ctypes
from tests.forking import be_steady
be_steady()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
memory = libc.malloc(1000)
ctypes.memset(memory, 7, 1000)
libc.free(ctypes.c_void_p(memory))
print(set(ctypes.string_at(libc.malloc(1000), 1000)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc fills memory that it hands out")
def test_memory_that_a_recorded_program_does_not_write_to_is_the_same_each_time():
    """Also a piece that was given back, and lies in the cache of its thread."""
    environment = {**os.environ, **STEADILY}
    done = subprocess.run(
        [sys.executable, "-c", UNWRITTEN], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{ {0x55 ^ 0xFF} }\n"


@pytest.mark.parametrize("what", ["records", "probes", "program", "torch", "Python"])
def test_evidence_of_another_kind_is_refused(tmp_path, monkeypatch, what):
    """In one clause that says what is another."""
    monkeypatch.setattr(store, "STORE", tmp_path)
    program = everything()[PROGRAM]
    now = store.key(program)
    assert what in now
    with store.writing(PROGRAM, {**now, what: "another"}):
        pass
    assert store.trouble(PROGRAM, now) == f"was recorded with another {what}"
    with store.writing(PROGRAM, now):
        pass
    assert store.trouble(PROGRAM, now) == ""


def test_all_that_probes_import_is_in_the_key():
    """Else evidence of other probes would be judged as that of today's."""
    keyed = [ROOT / path for path in (*store.RECORDS, *store.PROBES)]
    files = [file for path in keyed if path.is_dir() and "probes" in path.parts for file in path.rglob("*.py")]
    assert len(files) > 50
    imported = {name for file in files for name in modules(ast.parse(file.read_text()))}
    places = {ROOT.joinpath(*name.split(".")) for name in imported if name.startswith("ddpcheck.")}
    covered = [place for place in places if {place, *place.parents, place.with_suffix(".py")}.intersection(keyed)]
    assert sorted(places - {*covered}) == []


def modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not is_of_types(node, tree):
            yield node.module if node.module.count(".") else f"{node.module}.{node.names[0].name}"


def is_of_types(node: ast.ImportFrom, tree: ast.Module) -> bool:
    """Whether it is imported for its types alone."""
    blocks = [one for one in ast.walk(tree) if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    return any(node in block.body for block in blocks)


@pytest.mark.parametrize("arguments", [("--check", "tyop/nothing"), ("--renamed", "tyop"), ("--check", "assertions/*")])
def test_nothing_to_judge_is_an_error(tmp_path, arguments):
    """A name of no program, and what is not recorded."""
    assert replay(tmp_path, *arguments).returncode == 1


def test_trainings_of_another_kind_are_refused(tmp_path):
    """In one sentence; and they stay where they are."""
    (tmp_path / "trainers" / "Trainer").mkdir(parents=True)
    (tmp_path / "trainers" / "Trainer" / "key.json").write_text(json.dumps({"trainings": "others"}))
    told = replay(tmp_path, "--check", "trainers/Trainer *")
    assert told.returncode == 1
    assert told.stdout.startswith("trainers/Trainer was recorded with another ")
    assert "others" in (tmp_path / "trainers" / "Trainer" / "key.json").read_text()


def test_what_could_not_be_recorded_leaves_nothing(tmp_path, monkeypatch):
    """A recording that was interrupted is none."""
    monkeypatch.setattr(store, "STORE", tmp_path)
    with pytest.raises(RuntimeError), store.writing(PROGRAM, {}) as fresh:
        raise RuntimeError
    assert not fresh.exists()
    assert store.trouble(PROGRAM, {}) == "was not recorded"


def verdict(*findings: Finding, checked: int = 9) -> Verdict:
    statuses = {check: CheckResult(status="not-checked", checked=checked) for check in matrix.checks()}
    return Verdict(verdict="violated", world_size=2, checks=statuses, findings=findings)


def finding(line: int, rule: str, severity: str = "error") -> Finding:
    return Finding(
        check=rule.partition("/")[0],
        rule=rule,
        severity=severity,
        ranks=(0,),
        subject="w",
        expected="this",
        found="that",
        advice="Fix it.",
        where=CallSite(file="/some/where/train.py", line=line, function="main"),
    )


def test_a_program_has_a_line_for_each_rule():
    """Two places of one rule are in one line; the folder of a file is not told."""
    told = verdict(
        finding(9, "gradient-sync/a"), finding(3, "gradient-sync/a"), finding(5, "token-weight/b", "warning")
    )
    _, *lines = matrix.lines("right/gan", told)
    assert lines == [
        "right/gan | gradient-sync/a | error | train.py:3, train.py:9",
        "right/gan | token-weight/b | warning | train.py:5",
    ]
    assert matrix.severities(lines) == {("gradient-sync/a", "error"), ("token-weight/b", "warning")}


def test_a_finding_that_counts_something_else_than_its_check_has_failed():
    """Once in no window is no count of windows."""
    _, failed, _ = matrix.lines("right/gan", verdict(finding(9, "gradient-sync/a"), checked=0))
    assert failed == "right/gan | ddpcheck itself | failed | gradient-sync/a was found 1 times in 0 of 0 times"


def test_what_varies_is_marked_with_its_reason(monkeypatch):
    """A rule's line and a check's letter; other rules are told as ever."""
    reasons = {"gradient-sync/a": "ranks race", "token-weight": "as well", "verdict": "as well"}
    monkeypatch.setitem(matrix.VARYING, "right/gan", reasons)
    status, *lines = matrix.lines("right/gan", verdict(finding(9, "gradient-sync/a"), finding(3, "no-hang/b")))
    assert status.split(matrix.SEPARATOR)[2] == "~"
    assert status.count("~") == 2
    assert "right/gan | gradient-sync/a | ~ | ranks race" in lines
    assert "right/gan | no-hang/b | error | train.py:3" in lines
    assert not any("train.py:9" in line for line in lines)


def test_the_matrix_is_read_as_it_was_written(tmp_path, monkeypatch):
    """And its rules are counted by program."""
    whole = {name: matrix.lines(name, verdict(finding(9, "gradient-sync/a"))) for name in ("right/gan", "right/ema")}
    monkeypatch.setattr(matrix, "MATRIX", tmp_path / "matrix.txt")
    assert matrix.read() == {}
    matrix.MATRIX.write_text(matrix.written(whole))
    assert matrix.read() == whole
    assert matrix.reached(whole) == {"gradient-sync/a": 2}
    calls = {check: matrix.lines("right/gan", verdict(finding(9, f"{check}/missing-evidence"))) for check in checks()}
    assert matrix.reached(calls) == {"*/missing-evidence": len(calls)}, "those of all assertions are one rule"
    assert {"*/missing-evidence", "adapter/early-return", "no-hang/no-progress"} <= set(matrix.rules())
    assert matrix.differences(whole, whole) == []
    changed = {**whole, "right/gan": matrix.lines("right/gan", verdict(finding(8, "gradient-sync/a")))}
    assert matrix.differences(whole, changed) == [
        "-right/gan | gradient-sync/a | error | train.py:9",
        "+right/gan | gradient-sync/a | error | train.py:8",
    ]


def line(*parts: str) -> str:
    return matrix.SEPARATOR.join(parts)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (("h.", "no-hang/b | error | t.py:3"), []),
        (("hh", "no-hang/b | error | t.py:3"), []),
        (("..", "no-hang/b | error | t.py:3"), ["= | violated | .."]),
        (("h.",), ["= | violated | h.", "no-hang/b | not said | t.py:3"]),
        (
            ("h.", "no-hang/b | warning | t.py:3", "rank-failure/c | error | t.py:4"),
            ["= | violated | h.", "no-hang/b | warning | t.py:3", "rank-failure/c | error | t.py:4"],
        ),
    ],
)
def test_what_is_said_otherwise_on_devices(monkeypatch, there, expected):
    """But for what the CPU has nothing of."""
    monkeypatch.setattr(devices, "checks", lambda: ["buffer-sync", "device-placement"])
    here = [line("a", "=", "violated", "h."), line("a", "no-hang/b", "error", "t.py:3")]
    letters, *lines = there
    found = devices.differing(here, [line("a", "=", "violated", letters), *(line("a", one) for one in lines)])
    assert found == [line(f"a{DEVICE}", one) for one in expected]


def test_the_second_column():
    """Only what was judged is written anew; programs that did not run there have no lines, and count as such."""
    here = {name: [line(name, "=", "held", "h" * len(checks()))] for name in ("a", "b", "c")}
    blind = [line("a", "=", "held", "." * len(checks()))]
    old = {**here, f"b{DEVICE}": ["what it was"], devices.COUNT: ["a number"]}
    some = devices.beside(here, old, {f"a{DEVICE}": blind, f"c{DEVICE}": []}, complete=False)
    assert list(some) == ["a", f"a{DEVICE}", "b", f"b{DEVICE}", "c", devices.COUNT]
    assert (some[f"b{DEVICE}"], some[devices.COUNT]) == (["what it was"], ["a number"])
    every = {f"a{DEVICE}": blind, f"b{DEVICE}": here["b"], f"c{DEVICE}": []}
    whole = devices.beside(some, some, every, complete=True)
    assert list(whole) == ["a", f"a{DEVICE}", "b", "c", devices.COUNT]
    assert whole[devices.COUNT] == [line(devices.COUNT, "2 of 3 programs", "1 told otherwise")]


def test_a_program_on_devices(tmp_path):
    """It is recorded under a name of its own, and told as it is on the CPU."""
    assert run(tmp_path, "tests.recordings.record", PROGRAM).returncode == 0
    replay(tmp_path, PROGRAM)
    recorded = run(tmp_path, "tests.recordings.record", "--devices", PROGRAM)
    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    again = replay(tmp_path, PROGRAM)
    assert "left out" not in again.stdout
    assert "the matrix is as it was" in again.stdout, again.stdout


def test_the_matrix_is_complete():
    """Every program of every kind has lines in it, and nothing else has; reasons for what varies are of programs."""
    names = {*everything(), *(one.name for one in trainers.tried())}
    listed = {name for name in matrix.read() if not name.startswith(f"{assertions.NAME}/")}
    assert {name for name in listed if not devices.is_of_devices(name)} == names
    assert {name.removesuffix(DEVICE) for name in listed} <= {*names, devices.COUNT}
    assert any(name.startswith(f"{assertions.NAME}/") for name in matrix.read())
    assert set(matrix.VARYING) <= names


def test_every_program_of_the_fixtures_is_recorded():
    """But for those that a test runs because it is about something else than their evidence."""
    paths = {
        path for folder in ("corpus", "right", "cases/run", "cases/said") for path in (FIXTURES / folder).glob("*.py")
    }
    recorded = {program.path for program in everything().values()}
    left = {path.stem for path in paths - recorded} - {"__init__", "check"}
    assert left == {"garbage_evidence", "interrupted", "resumed_order_two_runs"}
