"""Where tasks meet that a launcher has started, as far as it says so."""

from __future__ import annotations

import socket

import pytest

from ddpcheck.run import options
from ddpcheck.run.tasks import meeting_place


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"MASTER_ADDR": "10.0.0.1", "SLURM_NNODES": "1"}, "10.0.0.1"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "2"}, "localhost"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "4"}, socket.gethostname()),
        ({"MPI_LOCALNRANKS": "4", "PMI_SIZE": "4"}, "localhost"),
        ({"SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "2"}, "localhost"),
        ({"SLURM_NNODES": "2", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}, "10.0.0.7"),
        ({}, socket.gethostname()),
    ],
)
def test_the_meeting_place_is_read_from_the_environment(environment, place):
    """The rendezvous' own address first; one host alone needs no network."""
    assert meeting_place(environment) == place


def test_a_task_is_one_of_several(tmp_path, monkeypatch):
    """It is run as it is, and its evidence is put together with that of others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    (tmp_path / "train.py").write_text("print(1)\n")
    found = options.parse(["--task", "train.py"])
    assert (found.launched, found.among_others, found.endpoint) == (False, True, "10.0.0.1")
    assert not options.parse(["train.py"]).among_others
