"""What the system says: cores, memory, files, the loopback interface, and what is installed. No torch."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import socket
import sys
from importlib import metadata
from pathlib import Path

import psutil

from ddpcheck.doctor.facts import Limit, Machine, asked
from ddpcheck.ranks.process_group import LOOPBACK

PACKAGES = ("ddpcheck", "pytest", "pytest-xdist", "hypothesis", "coverage", "pytest-cov", "pytest-randomly", "numpy")
"""Those that tests of distributed training are run with."""


def examine() -> Machine:
    """Ask the system; each question that it does not answer is reported as such."""
    return Machine(
        python=asked(lambda: f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"),
        system=asked(lambda: f"{platform.system()} {platform.release()}, {platform.machine()}"),
        cores=asked(_cores),
        memory=asked(_memory),
        shared_memory=asked(_shared_memory),
        files=asked(_files),
        loopback=asked(_loopback),
        packages=asked(_packages),
    )


def _cores() -> Limit:
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return Limit(total=there, free=min(usable, _quota() or usable))


def _quota() -> int | None:
    """Cores that the container may use, where it is limited."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            return max(1, int(quota) // int(period))
    return None


def _memory() -> Limit:
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    with contextlib.suppress(OSError, ValueError):  # a container's limit, where there is one
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        total, free = min(total, limit), max(0, min(free, limit - int((group / "memory.current").read_text())))
    return Limit(total=total, free=free)


def _shared_memory() -> Limit:
    if sys.platform != "linux":
        raise OSError(f"{sys.platform} has no /dev/shm")
    usage = shutil.disk_usage("/dev/shm")
    return Limit(total=usage.total, free=usage.free)


def _files() -> Limit:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = sys.maxsize
    return Limit(total=soft, free=soft - psutil.Process().num_fds())


def _loopback() -> str:
    """The interface, after a connection over it."""
    addresses = [a.address for a in psutil.net_if_addrs().get(LOOPBACK, ()) if a.family == socket.AF_INET]
    if not addresses:
        raise OSError(f"there is no interface {LOOPBACK} with an address; ranks of one machine meet over it")
    with socket.create_server((addresses[0], 0)) as server:
        socket.create_connection(server.getsockname(), timeout=2).close()
    return f"{LOOPBACK}, {addresses[0]}"


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found
