"""Processes that cannot get away: ties between parent and child, and who is left.

On Linux the kernel helps: a child can ask to die with its parent, and a process
can adopt the orphans below it. Elsewhere the same calls do nothing, and what is
left is found by walking the tree of processes alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

RUN_VARIABLE = "DDPCHECK_RUN"
"""In the environment of everything below a zygote; names the zygote's runtime folder."""

_linux = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _linux else None


def _prctl(option: int, value: int) -> None:
    if _libc is not None and _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` dies, however it dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


@contextlib.contextmanager
def tied_to_parent(parent: int) -> Iterator[None]:
    """Die with ``parent`` while this block runs foreign code that may never return.

    Outside of it the process sees its parent's end by itself, and tidies up first.
    """
    die_with_parent(parent)
    try:
        yield
    finally:
        _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of processes below this one whose own parent has died.

    Without it a daemonised child of a test would move to init, out of sight.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def native_threads() -> int:
    """The number of threads of this process, those that Python does not know included."""
    if _linux:
        return len(os.listdir("/proc/self/task"))
    return psutil.Process().num_threads()


def describe(process: psutil.Process) -> str:
    """Name a process for a person: its number and the start of its command line."""
    try:
        line = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        line = "?"
    return f"pid {process.pid} ({line[:80]})"


def children(pid: int | None = None) -> list[psutil.Process]:
    """All living processes below ``pid`` (this process, if not given); zombies are not counted."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
    return found


def kill_all(processes: list[psutil.Process], patience: float = 2.0) -> None:
    """Kill these processes and wait, at most ``patience`` seconds, until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=patience)


def kill_descendants(rounds: int = 20) -> None:
    """Kill everything below this process, including what is started meanwhile."""
    for _ in range(rounds):
        if not has_children():
            return
        kill_all(children(), patience=0.2)


def has_children() -> bool:
    """Whether any child is left, own or adopted; those that have died are reaped on the way.

    Only for a process all of whose own children have been waited for.
    """
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def sweep(run: str, patience: float = 2.0) -> list[str]:
    """Kill every process of the run that names ``run`` in its environment.

    The last net, for a zygote that was itself killed: what it had started is
    no longer below anything that we can walk.
    """
    mine = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == run:
                mine.append(process)
    names = [describe(process) for process in mine]
    kill_all(mine, patience)
    return names


class ExitWatch:
    """Tells when a child has ended, and how, without waiting for any one child first."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd: int | None = None
        self.status: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self.fd = os.pidfd_open(pid)

    def poll(self) -> bool:
        """Return whether the child has ended; its raw status is then in ``status``."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else's wait took it
                pid, status = self.pid, 0
            if pid:
                self.status = status
        return self.status is not None

    def kill(self) -> None:
        """Kill the child, unless it was reaped already: its number may be another's by now."""
        if not self.poll():
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, patience: float) -> bool:
        """Wait at most ``patience`` seconds for the end."""
        end = time.monotonic() + patience
        while not self.poll():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    @property
    def exit_code(self) -> int | None:
        if self.status is not None and os.WIFEXITED(self.status):
            return os.WEXITSTATUS(self.status)
        return None

    @property
    def signal(self) -> int | None:
        if self.status is not None and os.WIFSIGNALED(self.status):
            return os.WTERMSIG(self.status)
        return None
