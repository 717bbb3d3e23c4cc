"""What a watched script does with files is put on record: one script, in a process of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Process

STARTS = """
    import runpy, sys
    from pathlib import Path
    import torch
    from ddpcheck.probes.files import file_operations as files
    from ddpcheck.probes.recording import recorder
    from ddpcheck.probes import all_probes as watching

    watching.open_file(Path(sys.argv[1]), 1 << 28)
    files.watch()
    runpy.run_path(sys.argv[2], run_name="__main__")
    recorder.stop()
"""

SCRIPT = """
    import concurrent.futures, fcntl, glob, io, json, multiprocessing, os, pathlib, pickle
    import shutil, subprocess, sys, threading
    from os.path import exists

    import numpy as np
    import torch

    here = pathlib.Path("work")
    net = torch.nn.Linear(2, 2)
    adam = torch.optim.AdamW(net.parameters())

    def save_and_load():
        state = {"net": net.state_dict(), "best": {"adam": adam.state_dict()}}
        torch.save(state, here / "fresh.pt")
        net(torch.ones(1, 2)).sum().backward()
        adam.step()
        torch.save(state | {"best": {"adam": adam.state_dict()}}, "work/fresh.pt")
        with open(here / "half.pt", "wb") as file:
            torch.save(net, file)
        os.replace(here / "half.pt", here / "whole.pt")
        torch.load(here / "fresh.pt", map_location="cpu")
        with open(here / "fresh.pt", "rb") as file:
            torch.load(file, map_location=lambda storage, place: storage)
        memory = io.BytesIO()
        torch.save(net, memory)

    def write_and_remove():
        json.dump({}, open(here / "numbers.json", "w"))
        np.save(here / "array.npy", np.ones(2))
        np.load(here / "array.npy")
        with open(here / "log.txt", "a") as log:
            log.write("line")
        open(os.devnull, "w").close()
        (here / "marker").touch()
        (here / "numbers.json").unlink()
        (here / "tree").mkdir()
        (here / "tree" / "leaf.json").write_text("{}")
        shutil.rmtree(here / "tree")

    def ask():
        exists("work/fresh.pt"), os.path.isfile(here / "nothing.pt"), here.joinpath("whole.pt").exists()
        glob.glob("work/*.pt"), list(here.glob("*.npy")), os.listdir(here)
        for _ in range(1000):
            os.path.exists("work/again.pt")

    def read_a_lot():
        folder = here / "data"
        folder.mkdir()
        for number in range(300):
            os.close(os.open(folder / f"{number}.raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        for number in range(300):
            open(folder / f"{number}.raw").close()

    def in_threads():
        thread = threading.Thread(target=torch.save, args=(net, here / "thread.pt"), name="saver")
        thread.start()
        thread.join()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: torch.save(net, here / "pool.pt")).result()

    def under_a_lock():
        with open(here / "cache.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            np.save(here / "locked.npy", np.ones(2))
        np.save(here / "unlocked.npy", np.ones(2))

    def load_state():
        net.load_state_dict({"weight": torch.zeros(2, 2), "module.bias": torch.zeros(2)}, strict=False)
        net.load_state_dict({**net.state_dict(), "bias": torch.zeros(2)})
        adam.load_state_dict(torch.optim.AdamW(net.parameters()).state_dict())
        torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1.0).load_state_dict({"lr_lambdas": [None]})
        torch.amp.GradScaler("cpu", enabled=False).load_state_dict({})

    def send_to_workers():
        for function in (os.path.exists, os.path.isfile, os.path.isdir, pathlib.Path.exists, torch.save, torch.load):
            assert pickle.loads(pickle.dumps(function)) is function

    def refused(function, *args, **kwargs):
        try:
            function(*args, **kwargs)
        except (AssertionError, AttributeError, OSError, RuntimeError, TypeError, ValueError):
            return
        raise SystemExit(f"{function} was not refused")

    def start_oddly():
        true = shutil.which("true")
        for command in (pathlib.Path(true), true, os.fsencode(true), [pathlib.Path(true), b"1"], iter([true])):
            subprocess.run(command)
        subprocess.run(args=("nothing", pathlib.Path("x")), executable=pathlib.Path(true))
        subprocess.run("exit 0 # caf\\udce9", shell=True)
        subprocess.run(b"exit 0", shell=True)
        os.waitpid(os.posix_spawn(true, [true], {}), 0)
        refused(subprocess.Popen, 5)
        process = multiprocessing.get_context("fork").Process(name=5)
        process.start()
        process.join()
        class Unmade(threading.Thread):
            def __init__(self):
                pass
        refused(Unmade().start)

    def ask_oddly():
        assert not exists("a\\0b") and exists(b"work") and exists(0)
        refused(lambda: list(pathlib.Path(".").glob(5)))
        refused(open, "a\\0b")
        refused(open, 1 << 20)
        os.listdir(b"work")
        before = os.getcwd()
        gone = pathlib.Path("gone").absolute()
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        assert not exists("x") and not pathlib.Path("x").exists() and not glob.glob("*") and not glob.glob(b"*.pt")
        for attempt in (os.remove, os.listdir, open, os.rmdir, shutil.rmtree, torch.load):
            refused(attempt, "x/y.pt")
        refused(open, "y.pt", "w")
        refused(os.rename, "x", "y")
        refused(torch.save, {}, "y.pt")
        os.listdir()
        subprocess.run("true")
        os.chdir(before)

    parts = (
        save_and_load, write_and_remove, ask, read_a_lot, in_threads, under_a_lock, load_state, send_to_workers,
        start_oddly, ask_oddly,
    )
    for part in parts:
        part()
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Process:
    """The evidence of the script."""
    base = tmp_path_factory.mktemp("files")
    (base / "work").mkdir()
    (base / "script.py").write_text(textwrap.dedent(SCRIPT))
    (base / "starts.py").write_text(textwrap.dedent(STARTS))
    evidence = base / "evidence"
    evidence.mkdir()
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "starts.py", str(evidence), "script.py"],
        cwd=base, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    folder = Folder(evidence)
    folder.read()
    return next(one for one in folder.processes.values() if one.of(ev.File))  # there is one that was forked as well


def of(process: Process, part: str) -> list[ev.File]:
    """What one function of the script has done."""
    return [r for r in process.of(ev.File) if (where := process.where(r.site)) is not None and where.function == part]


def name(path: str) -> str:
    return path.rpartition("/")[2]


def told(records: list[ev.File]) -> list[tuple[str, ...]]:
    return [(r.op, r.how, name(r.path), *([name(r.target)] if r.target else [])) for r in records]


def test_nothing_of_ours_has_failed(process):
    """No probe had a defect."""
    assert [d.text for d in process.of(ev.Defect)] == []


def test_saves_and_loads(process):
    """A save is a write by torch.save, whether to a path or a file that is open; what stays in memory is none."""
    records = of(process, "save_and_load")
    assert told(records) == [
        ("write", "torch.save", "fresh.pt"),
        ("write", "torch.save", "fresh.pt"),
        ("write", "open", "half.pt"),
        ("write", "torch.save", "half.pt"),
        ("rename", "os.rename", "half.pt", "whole.pt"),
        ("read", "torch.load", "fresh.pt"),
        ("read", "open", "fresh.pt"),
        ("read", "torch.load", "fresh.pt"),
    ]
    assert [r.existed for r in records[:4]] == [False, True, False, False]
    assert all(r.path.startswith("/") and r.n <= r.ended for r in records)
    assert all(a.ended < b.n for a, b in itertools.pairwise(records))


def test_what_is_in_a_checkpoint(process):
    """Keys, where the tensors lie, and which keys hold the state of an optimizer that has stepped."""
    first, second, _, module, _, load, _, other = of(process, "save_and_load")
    assert (first.keys, first.devices, first.optimizers) == (["net", "best"], ["cpu"], [])
    assert second.optimizers == load.optimizers == ["best.adam"]
    assert module.keys == ["weight", "bias"]
    assert (load.device, other.device) == ("cpu", "a function")
    assert load.identity == other.identity == second.identity != ""


def test_writes_and_removals(process):
    """Files that are opened to be written anew are writes; logs, devices and folders are none."""
    assert told(of(process, "write_and_remove")) == [
        ("write", "open", "numbers.json"),
        ("write", "open", "array.npy"),
        ("read", "open", "array.npy"),
        ("write", "os.open", "marker"),
        ("remove", "os.remove", "numbers.json"),
        ("write", "open", "leaf.json"),
        ("remove", "shutil.rmtree", "tree"),
    ]


def test_questions(process):
    """Whether a file is there, by each way of asking; a question that is asked for ever is told of seldom."""
    records = of(process, "ask")
    assert [(r.how, name(r.path), r.existed) for r in records[:6]] == [
        ("os.path.exists", "fresh.pt", True),
        ("os.path.isfile", "nothing.pt", False),
        ("Path.exists", "whole.pt", True),
        ("glob", "*.pt", True),
        ("glob", "*.npy", True),
        ("os.listdir", "*", True),
    ]
    assert {name(r.path) for r in records[6:]} == {"again.pt"}
    assert 64 <= len(records[6:]) < 80


def test_a_data_set_is_not_told_file_by_file(process):
    """Of the many files in a folder, the first reads are on record."""
    assert 64 <= len(of(process, "read_a_lot")) < 80


def test_threads(process):
    """What a thread does carries its name, and the line that has started it; that it was waited for is told."""
    records = [r for r in process.of(ev.File) if r.thread]
    assert [(r.op, r.thread.partition("-")[0], name(r.path)) for r in records] == [
        ("write", "saver", "thread.pt"),
        ("join", "saver", ""),
        ("write", "ThreadPoolExecutor", "pool.pt"),
        ("join", "*", ""),
    ]
    assert all(a.ended < b.n for a, b in itertools.pairwise(records))
    where = process.where(records[0].site)
    assert where is not None
    assert (where.file, where.function) == ("script.py", "in_threads")


def test_starts(process):
    """The thread's start is on record, for what may be left over."""
    first = process.of(ev.Started)[0]
    assert (first.kind, first.name) == ("thread", "saver")


def test_locks(process):
    """A lock holds until its file is closed."""
    assert [(name(r.path), len(r.locks)) for r in of(process, "under_a_lock")] == [
        ("cache.lock", 0),
        ("locked.npy", 1),
        ("unlocked.npy", 0),
    ]


def test_who_opens_a_file(process):
    """The user's own line, or a library that it has called."""
    assert [(name(r.path), r.library) for r in of(process, "under_a_lock")] == [
        ("cache.lock", False),
        ("locked.npy", True),
        ("unlocked.npy", True),
    ]


def test_state_that_is_loaded(process):
    """Each load_state_dict, with what was missing and what was not wanted."""
    module, again, optimizer, scheduler, scaler = process.of(ev.StateLoaded)
    assert (module.owner, module.missing, module.unexpected, module.total, module.strict, module.wrapped) == (
        "module", ["bias"], ["module.bias"], 2, False, False,
    )  # fmt: skip
    assert (module.itself, again.itself, again.missing) == ([], ["weight"], [])
    assert [(s.owner, s.kind) for s in (optimizer, scheduler, scaler)] == [
        ("optimizer", "AdamW"), ("scheduler", "LambdaLR"), ("scaler", "GradScaler"),
    ]  # fmt: skip
