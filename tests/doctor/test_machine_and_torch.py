"""The doctor's questions to the machine and to torch, where the answers are not to be had."""

from __future__ import annotations

import importlib
import socket
import sys
import time

import psutil
import pytest

from ddpcheck.doctor import machine, self_test, torch_build
from ddpcheck.doctor.advice import advice_for, gist
from ddpcheck.doctor.facts import Limit, Unknown, asked


def test_this_machine_answers():
    """Here every question has an answer that can be."""
    seen = machine.examine()
    unknown = [name for name in seen.__struct_fields__ if isinstance(getattr(seen, name), Unknown)]
    assert unknown == []
    for limit in (seen.cores, seen.memory, seen.shared_memory, seen.files):
        assert isinstance(limit, Limit)
        assert 0 < limit.free <= limit.total
    assert seen.packages["pytest"] == pytest.__version__


def test_a_question_that_fails_is_told_in_one_line():
    """Whatever is raised becomes a reason."""
    assert asked(lambda: 1) == 1
    assert asked(lambda: 1 / 0) == Unknown(why="ZeroDivisionError: division by zero")

    def silent() -> None:
        raise OSError

    def long() -> None:
        raise RuntimeError("\nfirst\nsecond")

    assert asked(silent) == Unknown(why="OSError")
    assert asked(long) == Unknown(why="RuntimeError: first")


def refuse(*args, **kwargs):
    raise PermissionError("not allowed here")


@pytest.mark.parametrize(("module", "name", "fact"), [
    (psutil, "virtual_memory", "memory"),
    (machine.shutil, "disk_usage", "shared_memory"),
    (machine.resource, "getrlimit", "files"),
    (psutil, "net_if_addrs", "loopback"),
    (socket, "create_server", "loopback"),
    (machine.metadata, "version", "packages"),
    (machine.os, "cpu_count", "cores"),
    (machine.platform, "release", "system"),
])  # fmt: skip
def test_what_a_sandbox_forbids_is_unknown(monkeypatch, module, name, fact):
    """The other questions are answered all the same."""
    monkeypatch.setattr(module, name, refuse)
    seen = machine.examine()
    assert getattr(seen, fact) == Unknown(why="PermissionError: not allowed here")
    assert seen.python.startswith("3.")


def test_no_loopback_interface(monkeypatch):
    """A container without network lacks what ranks meet over."""
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    assert "ranks of one machine meet over it" in machine.examine().loopback.why


# --- torch, in an interpreter of its own


def broken(tmp_path, monkeypatch, code):
    """An environment whose torch is this code."""
    (tmp_path / "torch.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(("code", "why"), [
    ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
    ("import os; os.write(2, b'what\\n it says'); os.abort()",
     "python was killed by SIGABRT: what / it says / Fatal Python error: Aborted / at {torch}:1 in <module>"),
    ("import os; os._exit(3)", "python left with code 3"),
])  # fmt: skip
def test_a_torch_that_does_not_come_up(tmp_path, monkeypatch, code, why):
    """It is told, by whatever way it goes."""
    broken(tmp_path, monkeypatch, code)
    with torch_build.asked_aside() as answer:
        found = answer(time.monotonic() + 60)
    assert why.format(torch=tmp_path / "torch.py") in found.version.why
    assert isinstance(found.gpus, Unknown)


def test_a_torch_that_never_answers(tmp_path, monkeypatch):
    """It is ended when the time is over; when is made certain by the deadline alone."""
    broken(tmp_path, monkeypatch, "import threading; threading.Event().wait()")
    with torch_build.asked_aside() as answer:
        assert answer(time.monotonic() + 0.2) == torch_build.unknown("torch did not answer in time")
    assert [p for p in psutil.Process().children() if "torch_build" in " ".join(p.cmdline())] == []


def test_a_torch_that_knows_nothing(tmp_path, monkeypatch):
    """A torch without the names that are asked for leaves each question open, and no traceback."""
    broken(tmp_path, monkeypatch, "__version__ = '9.9'")
    with torch_build.asked_aside() as answer:
        found = answer(time.monotonic() + 60)
    assert found.version == "9.9"
    for fact in (found.build, found.backends, found.nccl, found.gpus):
        assert isinstance(fact, Unknown)


DEEP = """
import os
def deep(calls):
    if calls: deep(calls - 1)
    else:
        os.write(2, b"no such symbol\\n")
        os.abort()
deep(90)
"""


@pytest.mark.parametrize(("code", "words", "advice"), [
    ("raise ImportError('libcudart.so.13: cannot open shared object file')", ["libcudart.so.13"], "cannot be imported"),
    ("import os\nos.write(2, b'no such symbol\\n')\nos.abort()",
     ["killed by SIGABRT", "no such symbol", "torch.py:3 in <module>"], "Native code gave up"),
    (DEEP, ["killed by SIGABRT", "no such symbol", "torch.py:7 in deep", "torch.py:4 in deep"], "Native code gave up"),
    ("", [], "another thing of that name"),
    ("from torch import nn", [], "another thing of that name"),
], ids=["raises", "aborts", "aborts deep down", "is empty", "is named so"])  # fmt: skip
@pytest.mark.few(1)
def test_a_self_test_with_a_torch_that_does_not_come_up(tmp_path, monkeypatch, code, words, advice):
    """The process that ranks come from says why, the self-test fails with it, and nothing hangs."""
    broken(tmp_path, monkeypatch, code)
    stack = self_test.Session(self_test.BODIES, time.monotonic() + 60, lambda at, ended: None).run()
    assert not stack.healthy
    assert stack.tests[0].outcome == "failed"
    told = gist(stack.tests[0].text)
    assert [word for word in words if word not in told] == []
    assert "Extension modules" not in stack.tests[0].text
    if "abort" in code:
        assert "rank 1 could not start: Fatal Python error: Aborted" in stack.tests[0].text
    assert advice in stack.tests[0].advice
    assert f"The torch that is imported here is {tmp_path / 'torch.py'}." in stack.tests[0].advice
    assert isinstance(stack.ranks_start, Unknown)


@pytest.mark.parametrize(("text", "words"), [
    ("ModuleNotFoundError: No module named 'torch'", "Install torch"),
    ("ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package", "another thing of that name"),
    ("AttributeError: module 'torch' has no attribute 'manual_seed'", "another thing of that name"),
    ("ModuleNotFoundError: No module named 'msgspec'", "install ddpcheck"),
    ("0.weight differs from that of one process on the whole batch", "reinstall torch"),
    ("rank 1 was killed by SIGKILL", "want of memory"),
    ("rank 0 could not start\nFatal Python error: Segmentation fault", "Native code crashed"),
    ("rank 1 was killed by SIGABRT", "gave up"),
    ("pytest left with code 3 while it was at: importing torch", "--json"),
    ("the self-test did not end within 120 s; it was at: gloo on the CPU: importing torch", "slow disk"),
    ("OSError: [Errno 24] Too many open files", "ulimit -n"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver"),
    ("the self-test did not end within 120 s", "--timeout"),
    ("something else", "--json"),
])  # fmt: skip
def test_the_advice(text, words):
    """What failed decides what to do."""
    assert words in advice_for(text)


def test_the_advice_names_the_torch_where_it_may_be_at_fault():
    """Where that may be no matter, it is left out."""
    assert advice_for("was killed by SIGSEGV", "/x/torch.py").endswith(
        "The torch that is imported here is /x/torch.py."
    )
    assert "/x/torch.py" not in advice_for("was killed by SIGBUS", "/x/torch.py")
    assert "imported here" not in advice_for("was killed by SIGSEGV", "")


def test_where_torch_lies(tmp_path, monkeypatch):
    """What an import would find first, a folder without __init__.py too; nothing where there is none."""
    assert torch_build.file() == importlib.import_module("torch").__file__
    broken(tmp_path, monkeypatch, "never run")
    assert torch_build.file() == str(tmp_path / "torch.py")
    (tmp_path / "a" / "torch").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a")])
    assert torch_build.file() == str(tmp_path / "a" / "torch")
    monkeypatch.setattr(sys, "path", [])
    assert torch_build.file() == ""
