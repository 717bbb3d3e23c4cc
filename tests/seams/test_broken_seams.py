"""A torch that lacks one seam: the program runs as it did, and nothing that rests on it is held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpcheck import seams
from ddpcheck.checks.missing_seams import resting_on
from ddpcheck.checks.registry import checks, has_part
from ddpcheck.evidence import ORACLE
from ddpcheck.seams import BY_NAME
from tests.progress import wait_for
from tests.torch_names import LOSSES_ARE_NOT_TAKEN_APART

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DDP = "torch.nn.parallel.DistributedDataParallel"
C10D = "torch.distributed.distributed_c10d"
ENCLOSED = {
    f"{C10D}.GroupMember": ["NON_GROUP_MEMBER"],
    f"{C10D}._world": ["pg_map"],
    "torch.utils.checkpoint._CheckpointFrame": ["__init__"],
}
"""Seams in which there are others."""
OF_THE_RUNNER = (f"{C10D}._world", f"{C10D}._world.pg_map")
"""Those that the tests' own forks read."""


def _renamable(seam):
    """As ``renaming.can_be``, without torch: what Python itself calls can come only from a base of the class."""
    alone = ("Optimizer.__init__", "Join.__enter__", "Join.__exit__", "DataLoader.__init__", "Module.__call__",
             "_BaseDataLoaderIter.__init__", "_BaseDataLoaderIter.__next__",
             "_CheckpointFrame.__init__")  # fmt: skip
    return seam.name.startswith("torch.") and not seam.name.endswith(alone)


def _with_enclosed(name):
    """A seam, and those that are gone with it."""
    return [name, *(f"{name}.{last}" for last in ENCLOSED.get(name, []))]


TORCHS = [seam for seam in seams.SEAMS if _renamable(seam)]


@pytest.fixture(scope="module")
def ask():
    """Send a request to one process for all of them, and get its answer: see ``broken.serve``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.seams.broken"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", ORACLE: "1"},
    )

    def ask(**request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert "raised" not in answer, answer["raised"]
        return answer

    yield ask
    process.stdin.close()
    process.stdout.close()
    wait_for(lambda: process.poll() is not None, process)


def test_seams_that_cannot_be_missing_are_known(ask):
    """Each case below has a seam that can be renamed, and no such seam is left out."""
    renamable = ask(seam="")["renamable"]
    assert {name for name in renamable if _renamable(BY_NAME[name]) != renamable[name]} == set()


@pytest.mark.parametrize("name", [seam.name for seam in TORCHS])
@pytest.mark.few(2)
def test_a_seam_that_is_missing_is_noted(ask, name):
    """It alone, and nothing fails over it; one without which no program can do anything unseen is no loss."""
    seam = BY_NAME[name]
    found = ask(seam=name)
    assert sorted(found["missing"]) == (sorted(_with_enclosed(name)) if seam.is_needed else [])
    assert found["defects"] == []


@pytest.fixture(scope="module")
def known(ask):
    """The training under torch as it is."""
    return ask(seam="", path=str(HERE / "whole.py"))


def test_the_training_is_checked_in_all_ways(known):
    """What is not held here could not be lost."""
    assert known["verdict"] == "held"
    unseen = {check for check, status in known["status"].items() if status == "not-checked"}
    older = {"token-weight"} if LOSSES_ARE_NOT_TAKEN_APART else set()
    assert unseen == {check for check in checks() if not has_part(check, "run")} | {"device-placement"} | older


@pytest.mark.parametrize(
    "name", [seam.name for seam in TORCHS if resting_on(seam.sight) and seam.name not in OF_THE_RUNNER]
)
@pytest.mark.few(2)
def test_nothing_that_rests_on_it_is_held(ask, known, name):
    """The program says and does the same, no error is reported for it, and all other checks are made as before."""
    found = ask(seam=name, path=str(HERE / "whole.py"))
    assert (found["output"], found["exits"]) == (known["output"], known["exits"])
    assert [f["message"] for f in found["findings"] if f["severity"] == "error"] == []
    assert found["defects"] == []
    lost = resting_on(BY_NAME[name].sight) if BY_NAME[name].is_needed else ()
    expected = {c: "not-checked" if c in lost else status for c, status in known["status"].items()}
    assert found["status"] == expected, found["because"]
    because = tuple(f" has no {one}, on which this check rests" for one in _with_enclosed(name))
    assert all((found["because"][check] or "").endswith(because) for check in lost)
    assert bool(lost) == any(f"has no {name}" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("name", "program"),
    [
        (f"{DDP}._post_forward", "b01_module_called"),
        (f"{DDP}._module_parameters", "a01_new_parameter"),
        ("torch.optim.optimizer.register_optimizer_step_post_hook", "b21_one_rank_clips"),
        ("torch.library.Library.impl", "f22_load_without_barrier"),
        ("torch.nn.modules.module.register_module_parameter_registration_hook",
         "b20_optimizer_of_old_parameters"),
    ],
)  # fmt: skip
@pytest.mark.few(1)
def test_a_fault_is_not_told_as_held(ask, name, program):
    """Of what is violated under torch as it is, nothing is held under one that lacks what shows it."""
    path = str(ROOT / "fixtures" / "corpus" / f"{program}.py")
    before, after = (ask(seam=one, path=path, arguments=["--fault"]) for one in ("", name))
    broken = [check for check, status in before["status"].items() if status == "violated"]
    assert broken
    assert [check for check in broken if after["status"][check] == "held"] == []
    assert after["exits"] == before["exits"]
    assert after["defects"] == []
