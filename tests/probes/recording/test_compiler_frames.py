"""torch.compile makes the same graphs of a program with probes and without, and breaks them as often."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpcheck.probes.recording import compiler_frames, out_of_sight, patching
from tests import progress

PROGRAMS = Path(__file__).with_name("compiled_programs.py")


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What torch's compiler has counted of each program, in a process without probes and in one with them."""
    found = {}
    for how in ("plain", "watched"):
        command = [sys.executable, str(PROGRAMS), how]
        folder = tmp_path_factory.mktemp(how)
        run = progress.run(command, cwd=folder, text=True)
        assert run.returncode == 0, run.stderr
        found[how] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("program", re.findall(r"^def (\w+)\(\) -> None:$", PROGRAMS.read_text(), re.MULTILINE)[:-1])
def test_the_compiler_counts_the_same(counted: dict[str, Any], program: str) -> None:
    plain, watched = counted["plain"][program], counted["watched"][program]
    assert plain.pop("records") == 0
    assert watched.pop("records") > 0
    assert watched.pop("frames of ours") == plain.pop("frames of ours") == []
    assert watched == plain


def test_a_probe_is_hidden_and_what_it_stands_around_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's callback is taken away from the probe, given back for the call, and is there again afterwards."""
    state: list[Any] = ["the compiler's"]
    seen: list[Any] = []

    def set_callback(callback: Any) -> Any:
        before, state[0] = state[0], callback
        return before

    monkeypatch.setattr(out_of_sight, "set_callback", set_callback)

    class Called:
        def call(self, fails: bool) -> None:
            seen.append(("call", state[0]))
            if fails:
                raise KeyError

        def recursive(self) -> None:
            seen.append(("recursive", state[0]))

    def make(original: Any) -> Any:
        def call(self: Called, fails: bool) -> None:
            seen.append(("probe", state[0]))
            try:
                original(self, fails)
            finally:
                seen.append(("probe", state[0]))

        return call

    patching.around(Called, "call", make)
    patching.beforehand(Called, "recursive", lambda self: seen.append(("look", state[0])))
    Called().call(False)
    with pytest.raises(KeyError):
        Called().call(True)
    assert seen == [("probe", None), ("call", "the compiler's"), ("probe", None)] * 2
    seen.clear()
    Called().recursive()
    patching.shielded(lambda: seen.append(("hook", state[0])))()
    assert seen == [("look", None), ("recursive", "the compiler's"), ("hook", None)]
    assert state == ["the compiler's"]


def test_code_of_others_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decorator of the standard library's is its own, though what it has made is in a module of ours."""
    marked: list[Any] = []
    monkeypatch.setattr(compiler_frames, "_marking", lambda: marked.append)
    compiler_frames.leave_alone()
    names = {code.co_name for code in marked}
    assert {"replacement", "safe", "looking_like", "batch", "leave_alone"} <= names
    assert all("ddpcheck" in code.co_filename for code in marked)


def test_a_torch_without_its_compilers_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_frames, "_HOME", None)
    compiler_frames.leave_alone()
    assert compiler_frames._none("a callback") is None
    monkeypatch.setattr(compiler_frames, "_HOME", type("Older", (), {"skip_code": print}))
    assert compiler_frames._marking() is print


def test_this_torch_has_what_is_used() -> None:
    assert compiler_frames._marking() is not None
    assert compiler_frames.set_callback is torch._C._dynamo.eval_frame.set_eval_frame
