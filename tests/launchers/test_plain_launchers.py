"""What needs nothing but torch: shells, Python, torchrun in all its spellings, and tasks that start by themselves."""

from __future__ import annotations

import signal

import pytest

from tests.command.running import begin, finish
from tests.launchers.launching import FAULTS, PROGRAMS, environment, free_port, holds, launched

TRAIN = str(PROGRAMS / "train.py")
HELD_TOO = [FAULTS[0], pytest.param("", id="right", marks=pytest.mark.long)]

TWO_RANKS = """#!/bin/bash
export MASTER_ADDR=localhost MASTER_PORT=$1 WORLD_SIZE=2
for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank python "${@:2}" &
    ranks+=($!)
done
wait "${ranks[0]}" && wait "${ranks[1]}"
"""


@pytest.mark.parametrize("fault", HELD_TOO)
def test_a_shell_script_is_followed(tmp_path, fault):
    """`ddpcheck run bash train.sh`: the ranks are whoever joins the group."""
    (tmp_path / "train.sh").write_text(TWO_RANKS)
    ran = launched(tmp_path, "bash", "train.sh", free_port(), TRAIN, fault=fault)
    holds(ran, fault, "gradient-sync", "train.py")


@pytest.mark.parametrize("fault", HELD_TOO)
def test_tasks_report_together(tmp_path, fault):
    """Two tasks as srun and mpirun start them: one report, by the task of rank 0, and one verdict."""
    port = free_port()
    tasks = []
    for rank in "01":
        (tmp_path / rank).mkdir()
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank}
        command = ["--json", str(tmp_path / rank / "verdict.json"), "--task", "python", TRAIN]
        tasks.append(begin(tmp_path / rank, *command, *([fault] if fault else []), env=environment(**where)))
    ran = [finish(task, tmp_path / rank / "verdict.json") for rank, task in zip("01", tasks, strict=True)]
    for one in ran:
        assert one.document == ran[0].document
        assert one.code == ran[0].code
    holds(ran[0], fault, "gradient-sync", "train.py")
    assert "the task of rank 0 shows the report" in ran[1].err
    assert "gradient-sync" not in ran[1].err
    assert [rank["exit_code"] for rank in ran[0].document["ranks"]] == [0, 0]


@pytest.mark.long
@pytest.mark.parametrize("death", ["sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_task_that_fails_is_named(tmp_path, death):
    """How it ended is known by its own ddpcheck alone, and reported by that of rank 0."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys\nimport torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        f"if dist.get_rank() == 1:\n    {death}\ndist.barrier()\n"
    )
    port = free_port()
    tasks = []
    for rank in "01":
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank}
        command = ["--json", str(tmp_path / f"{rank}.json"), "--task", "python", str(script)]
        tasks.append(begin(tmp_path, *command, env=environment(**where)))
    first, second = (finish(task, tmp_path / f"{rank}.json") for rank, task in zip("01", tasks, strict=True))
    assert (first.code, second.code) == (1, 1), first.err + second.err
    assert first.document == second.document
    failed = first.document["ranks"][1]
    assert (failed["exit_code"], failed["signal"]) == ((3, None) if "exit" in death else (None, signal.SIGKILL))
    (failure,) = [one for one in first.document["findings"] if one["check"] == "rank-failure"]
    assert failure["ranks"] == [1]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("torchrun", "--standalone", "--nproc-per-node", "2", TRAIN), "--fault"),
        pytest.param(
            ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TRAIN),
            "--fault",
            marks=pytest.mark.long,
        ),
        pytest.param(("bash", str(PROGRAMS / "train.sh")), "--fault", marks=pytest.mark.long),
        pytest.param((str(PROGRAMS / "train.sh"),), "", marks=pytest.mark.long),
        pytest.param((str(PROGRAMS / "wrapper.py"),), "--fault", marks=pytest.mark.long),
        pytest.param(("python", "-u", str(PROGRAMS / "wrapper.py")), "", marks=pytest.mark.long),
    ],
)
def test_torchrun_as_it_is_written(tmp_path, forks, words, fault):
    """By its name, as a module, at the end of a shell script, and behind a wrapper in Python."""
    ran = launched(tmp_path, *words, fault=fault, forks=forks)
    holds(ran, fault, "gradient-sync", "train.py")
    assert [rank["exit_code"] for rank in ran.document["ranks"]] == [0, 0]


FAILING = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise RuntimeError("this rank fails")
dist.barrier()
"""


def test_torchruns_closing_words_stand_between_the_report_and_its_end(tmp_path, forks):
    """They are printed whole, and once; the last word is the verdict's."""
    (tmp_path / "train.py").write_text(FAILING)
    ran = launched(tmp_path, "torchrun", "--standalone", "--nproc-per-node", "2", "train.py", fault="", forks=forks)
    assert ran.code == 1
    assert ran.found == ["rank-failure"]
    report, box = ran.err.index("\nddpcheck ─"), ran.err.index("train.py FAILED")
    assert ran.err.index("rank-failure", report) < box
    assert ran.err.count("train.py FAILED") == 1
    end = ran.err.rindex("====")
    assert "rank-failure/failed-rank" in ran.err[end:]
    assert ran.err.splitlines()[-1] == "FAILED  1 error, exit code 1"


@pytest.mark.long
def test_a_launcher_that_is_followed_keeps_its_exit_code_for_us(tmp_path):
    """What the launcher makes of a rank's failure is a failure; how each rank ended is known."""
    (tmp_path / "train.py").write_text(FAILING)
    (tmp_path / "train.sh").write_text("exec torchrun --standalone --nproc-per-node 2 train.py\n")
    ran = launched(tmp_path, "bash", "train.sh", fault="")
    assert ran.code == 1
    assert ran.found == ["rank-failure"]
    assert ran.document["ranks"][1]["exit_code"] == 1
    assert "train.py FAILED" in ran.err


def test_output_and_input_are_the_commands_own(tmp_path):
    """Nothing of ours stands on stdout, and arguments arrive as they were given."""
    (tmp_path / "say.sh").write_text('printf "%s|" "$@"; exit 7\n')
    ran = launched(tmp_path, "bash", "say.sh", "--json", "a b", "-x", "", fault="")
    assert ran.out == "--json|a b|-x||"
    assert ran.code == 1, "the program failed"
    assert ran.document["verdict"] == "failed"


@pytest.mark.long
def test_interpreters_that_cannot_be_followed_are_named(tmp_path):
    """With the reason; nothing is held."""
    (tmp_path / "train.sh").write_text(TWO_RANKS.replace("python ", "python -I "))
    slow = tmp_path / "slow.py"
    slow.write_text((PROGRAMS / "train.py").read_text() + "import time\ntime.sleep(8)\n")
    ran = launched(tmp_path, "bash", "train.sh", free_port(), str(slow), fault="")
    assert ran.code == 3, ran.err
    told = " ".join(" ".join(ran.document["notes"]).split())
    assert "2 processes used torch and could not be followed" in told
    assert "was started with -I, which leaves out PYTHONPATH" in told
