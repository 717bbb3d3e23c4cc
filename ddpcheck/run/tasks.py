"""Tasks that a launcher such as srun or mpirun has started, one for each rank: where they meet."""

from __future__ import annotations

import socket
from collections.abc import Mapping

_TOGETHER = (("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"), ("MPI_LOCALNRANKS", "PMI_SIZE"))
"""Open MPI's, and those of MPICH and Intel MPI: the tasks of this host, and all of them."""

_ONE_HOST = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
"""Slurm's number of hosts, of this step and of the job."""


def meeting_place(environment: Mapping[str, str]) -> str:
    """The host at which the tasks meet, as far as their environment says so.

    This host's own name stands for whatever leads to the others.
    """
    if place := environment.get("MASTER_ADDR"):
        return place
    for here, everywhere in _TOGETHER:
        if environment.get(here, "no") == environment.get(everywhere):
            return "localhost"
    hosts = next((environment[name] for name in _ONE_HOST if name in environment), "")
    if hosts == "1":
        return "localhost"
    return environment.get("SLURM_LAUNCH_NODE_IPADDR") or socket.gethostname()
