"""Ctrl-C and a scheduler's SIGTERM, however they come: each process gets them once, and the run is no failure."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
from running import begin, finish, script

from ddpcheck.run.signals import TOGETHER

TRAINS = """
model, optimizer = setup()
step(model, optimizer)
open(f"ready{dist.get_rank()}", "w").write(str(os.getpid()))
while True:
    step(model, optimizer)
    time.sleep(0.05)
"""

JOINS = """
open(f"ready{os.environ['RANK']}", "w").write(str(os.getpid()))
if os.environ["RANK"] == "1":
    time.sleep(100)
setup()
"""

SAVES = """
import signal
model, optimizer = setup()
asked = []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
open(f"ready{dist.get_rank()}", "w").write(str(os.getpid()))
how_many = torch.zeros(1)
while not how_many:
    step(model, optimizer)
    time.sleep(0.01)
    how_many.fill_(len(asked))
    dist.all_reduce(how_many)
if dist.get_rank() == 1:
    time.sleep(0.5)
dist.barrier()
open(f"saved{dist.get_rank()}", "w").write(str(asked))
dist.destroy_process_group()
"""


def interrupted(folder, forks, body, number, to, *options, waits_for=2):
    """Run a script, and send a signal once its processes are ready: to one process, or to the group of all."""
    target = folder / "verdict.json"
    process = begin(folder, "--json", target, *options, script(folder, body), forks=forks)
    files = [folder / f"ready{rank}" for rank in range(waits_for)]
    while not all(f.exists() and f.read_text() for f in files):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    if to == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid if to == "ddpcheck" else family[0].pid, number)
    ran = finish(process, target)
    assert ran.document is not None, ran.err
    assert [one for one in family if one.is_running() and one.status() != "zombie"] == []
    return ran


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGINT, "group"),
        (signal.SIGTERM, "ddpcheck"),
        (signal.SIGTERM, "agent"),
    ],
)
@pytest.mark.few(1)
def test_an_interrupted_run_is_no_failure(tmp_path, forks, number, to):
    """It is reported as interrupted, with what held until then; no process stays."""
    ran = interrupted(tmp_path, forks, TRAINS, number, to, "--nproc-per-node", "2")
    assert (ran.document["verdict"], ran.document["interrupted_by"]) == ("interrupted", number.name)
    assert (ran.found, ran.code) == ([], 128 + number)
    assert f"interrupted by {number.name} after" in " ".join(ran.err.split())
    checks = ran.document["checks"]
    assert checks["gradient-sync"]["status"] == "held"
    assert {checks[c]["skipped_because"] for c in ("rank-failure", "no-hang", "process-hygiene")} == {
        "the run was interrupted"
    }
    if number == signal.SIGTERM:
        assert {(r["exit_code"], r["signal"]) for r in ran.document["ranks"]} == {(None, number)}


@pytest.mark.long
def test_ranks_that_are_not_together_yet_are_no_hang(tmp_path, forks):
    """One waits in init_process_group; torchrun's agent alone is told to end."""
    ran = interrupted(tmp_path, forks, JOINS, signal.SIGINT, "agent", "--nproc-per-node", "2")
    assert (ran.document["verdict"], ran.found, ran.code) == ("interrupted", [], 130)


def test_ranks_have_their_time_to_save(tmp_path, forks):
    """They get the signal once, agree on the end, and leave with exit code 0; nobody takes them for stuck meanwhile."""
    ran = interrupted(tmp_path, forks, SAVES, signal.SIGTERM, "group", "--nproc-per-node", "2")
    assert (ran.document["verdict"], ran.found, ran.code) == ("interrupted", [], 143)
    assert [r["exit_code"] for r in ran.document["ranks"]] == [0, 0]
    assert [(tmp_path / f"saved{rank}").read_text() for rank in (0, 1)] == ["[15]", "[15]"]


ALONE = """
import signal, sys
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
open("ready0", "w").write("ready")
while not seen:
    time.sleep(0.01)
time.sleep(1.0)
open("seen", "w").write(str(len(seen)))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
"""


@pytest.mark.parametrize("to", ["ddpcheck", "group"])
def test_a_script_that_is_run_as_it_is_gets_the_signal_once(tmp_path, forks, to):
    """Sent to ddpcheck it is handed on; from a terminal the script has had it."""
    ran = interrupted(tmp_path, forks, ALONE, signal.SIGINT, to, waits_for=1)
    assert (tmp_path / "seen").read_text() == "1"
    assert (ran.document["verdict"], ran.code) == ("interrupted", 130)


SURVIVES = """
import signal, sys
seen = []
signal.signal(signal.SIGHUP, lambda number, frame: seen.append(number))
open("ready0", "w").write("ready")
while len(seen) < 2:
    time.sleep(0.01)
    open("seen", "w").write(str(len(seen)))
open("seen", "w").write("all")
"""


def test_a_script_that_is_run_as_it_is_lives_through_a_second_signal(tmp_path, forks):
    """One that opens its log anew at each SIGHUP gets each, and goes on."""
    process = begin(tmp_path, script(tmp_path, SURVIVES), forks=forks)
    deadline = time.monotonic() + 60
    for ready in ("0", "1"):
        while (
            not (tmp_path / "ready0").exists()
            or not (tmp_path / "seen").exists()
            or ((tmp_path / "seen").read_text() != ready)
        ):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "a signal did not reach the script"
            time.sleep(0.05)
        time.sleep(TOGETHER)
        os.kill(process.pid, signal.SIGHUP)
    finish(process)
    assert (tmp_path / "seen").read_text() == "all"
