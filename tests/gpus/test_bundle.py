"""The bundle of a run on GPUs: every part on its own, on the disk as it comes, and packed whatever has failed."""

from __future__ import annotations

import json
import sys
import tarfile

import pytest

from tests.gpu import bundle, failed_tests, loaded_libraries, parts, record, stages
from tests.gpu.facts import Facts
from tests.gpu.scripts import Ended

FACTS = Facts("2026-01-31", ("NVIDIA L4",), "570.1", "2.15.0+cu132", "13.2", "2.30.7", "3.13.1", "abc1234")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# --- parts


def test_a_part_is_on_the_disk_line_by_line(tmp_path):
    """A program that is ended has left what it had said, and the index says how it ended."""
    code = "import time; print('first', flush=True); time.sleep(600)"
    assert parts.gather(tmp_path, "slow.txt", python(code), 1.5, tmp_path) is None
    assert (tmp_path / "slow.txt").read_text() == "first\n"
    assert "slow.txt" in (tmp_path / parts.INDEX).read_text()
    assert "was ended at a limit of 2 s" in (tmp_path / parts.INDEX).read_text()


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (python("print(1)"), 0, "exit code 0"),
        (python("raise SystemExit(3)"), 3, "exit code 3"),
        (python("import os; os.kill(os.getpid(), 9)"), -9, "signal 9"),
        (["no-such-program"], None, "could not be started: No such file"),
    ],
)
def test_how_a_part_ended(tmp_path, command, code, said):
    """A failure of one is written down, and raises nothing."""
    assert parts.gather(tmp_path, "part.txt", command, 30, tmp_path) == code
    assert said in (tmp_path / parts.INDEX).read_text()


# --- stages, libraries


def test_what_a_stage_says():
    """Its figures as far as it came, and why it came no further."""
    output = '{"init": 0.5}\nnoise\n{"first_call": 2.0}\nTraceback\nRuntimeError: no\n'
    assert stages.told(Ended(0, output, 3.0)) == {"init": 0.5, "first_call": 2.0}
    failed = stages.told(Ended(1, output, 3.0, left=("7 python",)))
    assert failed["failed"] == "ended with 1"
    assert failed["last lines"] == ["noise", "Traceback", "RuntimeError: no"]
    assert failed["left behind"] == ("7 python",)
    assert "180 s" in stages.told(Ended(-15, "", 180.0, timed_out=True))["failed"]


def test_stages_without_a_gpu(tmp_path):
    """Each says on its own why there is no figure."""
    code = parts.gather(tmp_path, "stages.jsonl", [sys.executable, "-m", "tests.gpu.stages"], 120, record.ROOT)
    told = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert code == 0
    assert [one["stage"] for one in told] == ["ranks", "context", "nccl 1", "nccl 2"]
    assert told[0]["zygote_start"] > 0
    assert told[0]["forkable"] is True


def test_the_libraries_that_are_loaded():
    """By their paths, each once."""
    maps = """\
7f00-7f01 r-xp 00000000 08:01 1   /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r-xp 00000000 08:01 2   /opt/my nccl/libnccl.so.2.30.7
7f04-7f05 r--p 00000000 08:01 2   /opt/my nccl/libnccl.so.2.30.7
7f06-7f07 r-xp 00000000 08:01 3   /venv/nvidia/lib/libcudnn.so.9
7f08-7f09 rw-p 00000000 00:00 0   [heap]
7f0a-7f0b rw-p 00000000 00:00 0
"""
    assert loaded_libraries.libraries(maps) == [
        "/opt/my nccl/libnccl.so.2.30.7",
        "/venv/nvidia/lib/libcudnn.so.9",
    ]


# --- what is kept of tests


def test_a_failed_test_has_a_folder(project, tmp_path):
    """Its report, its files and the ranks' logs; of one that passes there is a line, and its logs are gone."""
    kept = tmp_path / "kept"
    project.write(
        "conftest.py",
        """
        from tests.gpu import failed_tests
        def pytest_configure(config):
            if (recorded := failed_tests.plugin()) is not None:
                config.pluginmanager.register(recorded)
        """,
    )
    project.write(
        "test_it.py",
        """
        import os, pytest
        from pathlib import Path
        def log(text):
            Path(os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))).write_text(text)
        def test_right(tmp_path):
            log("right")
        def test_wrong(tmp_path):
            log("wrong")
            (tmp_path / "verdict.json").write_text("{}")
            (tmp_path / "weights.pt").write_text("of no interest")
            print("its last words")
            assert 1 == 2
        @pytest.mark.ddp(world_size=2)
        def test_ranks(ddp):
            log(f"rank {ddp.rank}")
            print("said by", ddp.rank)
            assert ddp.rank == 0
        """,
    )
    ran = project.run(**failed_tests.logging_variables(kept))
    assert {name: one.outcome for name, one in ran.tests.items()} == {
        "test_right": "passed", "test_wrong": "failed", "test_ranks": "failed",
    }, ran.stdout  # fmt: skip
    lines = [json.loads(line) for line in (kept / failed_tests.LINES).read_text().splitlines()]
    assert [(one["event"], one["test"].partition("::")[2], one.get("outcome")) for one in lines] == [
        ("begins", "test_right", None), ("ended", "test_right", "passed"),
        ("begins", "test_wrong", None), ("ended", "test_wrong", "failed"),
        ("begins", "test_ranks", None), ("ended", "test_ranks", "failed"),
    ]  # fmt: skip
    folders = {path.name: path for path in (kept / failed_tests.FAILED).iterdir()}
    assert sorted(folders) == ["test_it.py-test_ranks", "test_it.py-test_wrong"]
    wrong, ranks = folders["test_it.py-test_wrong"], folders["test_it.py-test_ranks"]
    assert "assert 1 == 2" in (wrong / "report.txt").read_text()
    assert "its last words" in (wrong / "report.txt").read_text()
    assert (wrong / "memory.txt").exists()
    assert [path.name for path in (wrong / "files").iterdir()] == ["verdict.json"]
    assert [path.read_text() for path in (wrong / "logs").iterdir()] == ["wrong"]
    assert sorted(path.read_text() for path in (ranks / "logs").iterdir()) == ["rank 0", "rank 1"]
    assert "rank 1 failed first" in (ranks / "report.txt").read_text()
    assert list((kept / failed_tests.RUNNING).iterdir()) == []


def test_of_a_large_file_the_end_is_kept(tmp_path, monkeypatch):
    """What is last tells what happened."""
    monkeypatch.setattr(failed_tests, "LARGEST", 4)
    (tmp_path / "log").write_text("0123456789")
    failed_tests.copy(tmp_path / "log", tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_text() == "6789"


# --- the bundle


def test_a_further_bundle_of_the_same_day(tmp_path):
    """None is written over, packed or not."""
    first = bundle.begin(tmp_path)
    packed = bundle.pack(first)
    names = [packed.name, bundle.begin(tmp_path).name, bundle.begin(tmp_path).name]
    stem = packed.name.removesuffix(".tar.gz")
    assert names == [f"{stem}.tar.gz", f"{stem}-2", f"{stem}-3"]


@pytest.mark.parametrize("gpus", [(), FACTS.gpus])
def test_a_run_is_packed(tmp_path, monkeypatch, capfd, gpus):
    """What pytest prints is passed on, its exit code too; parts that fail are named; a page only of a real GPU."""
    monkeypatch.chdir(tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    monkeypatch.setattr(record, "FOLDER", pages)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "COMMAND", python("print('3 passed'); print('token ghp_0123456789'); exit(5)"))
    monkeypatch.setattr(record, "BEFORE", (record.Part("absent.txt", ["no-such-program"]),))
    monkeypatch.setattr(record, "AFTER", (record.Part("late.txt", python("print('late')")),))
    monkeypatch.setattr(record.facts, "gather", lambda: FACTS._replace(gpus=gpus))
    assert record.main(["-k", "x"]) == 5
    printed = capfd.readouterr().out
    assert "3 passed" in printed
    (packed,) = tmp_path.glob("ddpcheck-gpu-*.tar.gz")
    assert packed.name in printed
    with tarfile.open(packed) as file:
        files = {one.name.partition("/")[2]: file.extractfile(one).read().decode() for one in file if one.isfile()}
    assert json.loads(files["facts.json"])["torch"] == "2.15.0+cu132"
    assert "token (masked)" in files["pytest.txt"]
    assert files["late.txt"] == "late\n"
    assert "absent.txt" in files[parts.INDEX]
    assert ("page.md" in files) is bool(gpus)
    assert len(list(pages.iterdir())) == bool(gpus)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([packed.name, "pages"])


def test_a_run_that_is_ended_keeps_the_logs_of_its_last_test(tmp_path, monkeypatch):
    """Those of the ranks that hang are what there is to know of it; and no file is named after the machine."""
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-node-7")
    folder = bundle.begin(tmp_path)
    running = folder / failed_tests.RUNNING
    running.mkdir()
    (running / "nccl-12.log").write_text("gpu-node-7:12 NCCL INFO waits")
    (running / "flight-of-rank-0").write_bytes(b"\x80pickled")
    (folder / "gpu-node-7-12-345.evidence").write_bytes(b"its own")
    with tarfile.open(bundle.pack(folder)) as packed:
        held = {
            name.partition("/")[2]: file.read()
            for name in packed.getnames()
            if (file := packed.extractfile(name)) is not None
        }
    assert held == {
        "unfinished/nccl-12.log": b"(host):12 NCCL INFO waits",
        "unfinished/flight-of-rank-0": b"\x80pickled",
        "(host)-12-345.evidence": b"its own",
    }


def test_whatever_fails_there_is_a_bundle(tmp_path, monkeypatch):
    """Facts that cannot be gathered, and tests that do not end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "COMMAND", python("import time; print('one', flush=True); time.sleep(600)"))
    monkeypatch.setattr(record, "SILENCE", 2.0)
    monkeypatch.setattr(record, "BEFORE", ())
    monkeypatch.setattr(record, "AFTER", ())
    monkeypatch.setattr(record.facts, "gather", lambda: 1 / 0)
    assert record.main([]) == 1
    (packed,) = tmp_path.glob("ddpcheck-gpu-*.tar.gz")
    with tarfile.open(packed) as file:
        index = file.extractfile(f"{packed.name.removesuffix('.tar.gz')}/{parts.INDEX}").read().decode()
    assert "ZeroDivisionError" in index
    assert "pytest.txt" in index
    assert "was ended at a limit of 2 s" in index


THREE_TESTS = """
import json, os, sys, time
from pathlib import Path
folder = Path(os.environ["DDPCHECK_GPU_BUNDLE"])
for test in ("a", "b", "c"):
    if f"--deselect={test}" not in sys.argv:
        with (folder / "tests.jsonl").open("a") as file:
            file.write(json.dumps({"event": "begins", "test": test}) + "\\n")
        print("run", test, flush=True)
        if test == "b":
            (folder / "running" / "nccl.log").write_text("of b")
            ENDS
"""


@pytest.mark.parametrize("ends", ["time.sleep(600)", "os.abort()", "sys.exit(3)"])
def test_a_test_that_takes_pytest_with_it_takes_no_other(tmp_path, monkeypatch, capfd, ends):
    """Those after it are run all the same; that it happened is not forgotten, and its logs are no other test's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "COMMAND", python(THREE_TESTS.replace("ENDS", ends)))
    monkeypatch.setattr(record, "SILENCE", 3.0)
    monkeypatch.setattr(record, "BEFORE", ())
    monkeypatch.setattr(record, "AFTER", ())
    monkeypatch.setattr(record.facts, "gather", lambda: FACTS._replace(gpus=()))
    assert record.main([]) == 1
    printed = capfd.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("run")] == ["run a", "run b", "run c"]
    assert "pytest did not end by itself, in b: it goes on with the tests after that" in printed
    (packed,) = tmp_path.glob("ddpcheck-gpu-*.tar.gz")
    with tarfile.open(packed) as file:
        folder = packed.name.removesuffix(".tar.gz")
        assert file.extractfile(f"{folder}/unfinished/nccl.log").read() == b"of b"
