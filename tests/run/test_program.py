"""What a name on the command line stands for: a script, a module, or a command that is found as a shell finds it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ddpcheck.run import options, program
from ddpcheck.run.program import NotRunnable, is_torchrun, kind_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder, and a folder of commands on PATH."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def executable(path, text="#!/bin/bash\nexit 0\n"):
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_command_on_path_is_run_as_it_is(here):
    """Where there is no file of its name."""
    executable(here / "bin" / "launch")
    assert kind_of("launch", module=False, for_ranks=False) == "command"
    found = options.parse(["--strict", "launch", "--nproc-per-node", "2", "train.py"])
    assert (found.launched, found.kind, found.command) == (False, "command", "launch --nproc-per-node 2 train.py")


def test_a_python_file_is_a_script_even_if_there_is_a_command(here):
    """As it was before; ./name and PATH keep a command apart from it."""
    executable(here / "bin" / "train")
    (here / "train").write_text("print(1)\n")
    assert kind_of("train", module=False, for_ranks=False) == "script"


@pytest.mark.parametrize("make", [lambda path: path.write_text("no Python here\n"), lambda path: path.mkdir()])
def test_a_command_goes_before_what_no_interpreter_runs(here, make):
    """A text, and a clone of the launcher's repository."""
    executable(here / "bin" / "launch")
    make(here / "launch")
    assert kind_of("launch", module=False, for_ranks=False) == "command"


def test_an_executable_file_is_run_by_its_own_interpreter(here):
    """With a path, as in a shell; a file of Python is run by this one."""
    executable(here / "train.sh")
    executable(here / "torch", "#!/bin/bash\ntorchrun\n")  # Python would take this text, too
    executable(here / "wrapper.py", "#!/usr/bin/env python3\nprint(1)\n")
    assert kind_of("./train.sh", module=False, for_ranks=False) == "command"
    assert kind_of("./torch", module=False, for_ranks=False) == "command"
    assert kind_of("./wrapper.py", module=False, for_ranks=False) == "script"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.sh", "#!/usr/bin/env bash\ntorchrun train.py\n", "ddpcheck run bash train.sh"),
        ("train.sh", "torchrun --standalone train.py\n", "ddpcheck run bash train.sh"),
        ("train", "#!/bin/zsh -e\nls\n", "ddpcheck run zsh train"),
        ("train.txt", "no Python here\n", "no Python that"),
    ],
)
def test_what_is_not_executable_gets_a_line_that_names_the_way(here, name, text, words):
    """It is not guessed at."""
    (here / name).write_text(text)
    with pytest.raises(NotRunnable, match=words):
        kind_of(name, module=False, for_ranks=False)


def test_what_is_nothing_gets_a_line_that_names_the_way(here):
    """Neither a file nor a command."""
    with pytest.raises(NotRunnable, match="no command trian on PATH: name a file of Python"):
        kind_of("trian", module=False, for_ranks=False)
    with pytest.raises(NotRunnable, match=r"^there is no script trian\.py$"):
        kind_of("trian.py", module=False, for_ranks=False)


def test_torchruns_options_start_no_commands(here):
    """Two ways are named: each rank runs it, or it is followed."""
    executable(here / "bin" / "launch")
    with pytest.raises(NotRunnable, match="with --no-python each rank runs it"):
        kind_of("launch", module=False, for_ranks=True)
    found = options.parse(["--nproc-per-node", "2", "--no-python", "launch"])
    assert (found.launched, found.kind) == (True, "command")


# --- torchrun


@pytest.fixture
def environment(here, monkeypatch):
    """A folder with this environment's interpreter and torchrun, first on PATH."""
    ours = here / "ours"
    ours.mkdir()
    executable(ours / "torchrun")
    executable(ours / "python3")
    monkeypatch.setattr(sys, "executable", str(ours / "python3"))
    monkeypatch.setenv("PATH", str(ours))
    (here / "train.py").write_text("print(1)\n")
    return ours


@pytest.mark.parametrize(
    "words", [["torchrun"], ["python3", "-m", "torch.distributed.run"], ["-m", "torch.distributed.run"], ["/torchrun"]]
)
def test_torchrun_itself_is_as_good_as_none(environment, words):
    """Its options are read as if they stood there without it; without any, it starts one rank."""
    words = [f"{environment}{word}" if word.startswith("/") else word for word in words]
    behind = ["--nproc-per-node", "2", "train.py", "--lr", "1"]
    with_it, without = options.parse(["--strict", *words, *behind]), options.parse(["--strict", *behind])
    assert with_it == without
    assert with_it.launched
    assert options.parse([*words, "train.py"]).launched
    assert not options.parse(["train.py"]).launched


def test_torchrun_of_another_environment_is_a_command(environment, here, monkeypatch):
    """Its torch is another one."""
    other = here / "other"
    other.mkdir()
    executable(other / "torchrun")
    monkeypatch.setenv("PATH", f"{other}:{environment}")
    assert is_torchrun("torchrun", ["train.py"], module=False) is None
    assert options.parse(["torchrun", "--nproc-per-node", "2", "train.py"]).kind == "command"


def test_torchrun_is_known_without_being_on_path(environment, monkeypatch):
    """It belongs to the torch that there is."""
    monkeypatch.setenv("PATH", "")
    assert is_torchrun("torchrun", ["train.py"], module=False) == 0


def test_a_script_of_that_name_is_a_script(environment):
    """The user's own."""
    Path("torchrun").write_text("print(1)\n")
    assert not options.parse(["torchrun"]).launched


def test_another_module_or_interpreter_is_none(environment):
    """What is not torchrun is run as it is."""
    assert is_torchrun("python3", ["-m", "torch.distributed.launch"], module=False) is None
    assert is_torchrun("python3", ["train.py"], module=False) is None
    assert is_torchrun("json.tool", [], module=True) is None
    assert program.TORCHRUN == "torch.distributed.run"
