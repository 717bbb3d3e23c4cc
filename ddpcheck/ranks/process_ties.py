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
import threading
import time
from collections.abc import Iterable, Iterator

import psutil

from ddpcheck.vocabulary.clock import clock

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

RUN_VARIABLE = "DDPCHECK_RUN"
"""In the environment of everything below a zygote; names the zygote's runtime folder."""

UNSEEN = contextlib.suppress(Exception)
"""Where /proc is hidden there is little to be seen, and psutil raises whatever it comes upon (IndexError, for one)."""

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


def tell_of_parents_end(number: int) -> None:
    """Have the kernel send this signal when the parent's thread that started this process ends, or all of it."""
    _prctl(_PR_SET_PDEATHSIG, number)


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
        with contextlib.suppress(OSError):
            return len(os.listdir("/proc/self/task"))
    with UNSEEN:
        return psutil.Process().num_threads()
    return threading.active_count()


def describe(process: psutil.Process) -> str:
    """Name a process for a person: its number and the start of its command line."""
    try:
        line = " ".join(process.cmdline()) or process.name()
    except Exception:  # see UNSEEN
        line = "?"
    return f"pid {process.pid} ({line[:80]})"


def children(recursive: bool = True, dead: bool = False) -> list[psutil.Process]:
    """The processes below this one, or its own children alone; those that have ended count only if asked for."""
    found = []
    with UNSEEN:
        for child in psutil.Process().children(recursive=recursive):
            with UNSEEN:
                if dead or child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
    return found


def kill_all(processes: list[psutil.Process], patience: float = 2.0) -> None:
    """Kill these processes and wait, at most ``patience`` seconds, until they are gone."""
    for process in processes:
        with UNSEEN:
            process.kill()
    with UNSEEN:
        psutil.wait_procs(processes, timeout=patience)


def is_childless() -> bool:
    """Whether this process certainly has no child, not even a dead one; quick, where that is the case."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    except AttributeError:  # not every platform has it
        return False
    return False


class Family:
    """The processes below this one, and who among them was there before a test began.

    What the user's own hooks have started for the session (a server, say) is
    left alone; whatever else is there when the ranks have gone is a stranger.
    """

    def __init__(self, before: frozenset[int] | None = None) -> None:
        if before is None:
            before = frozenset() if is_childless() else frozenset(p.pid for p in children())
        self._before = before

    def strangers(self) -> list[psutil.Process]:
        if is_childless():
            return []
        return [p for p in children() if p.pid not in self._before]

    def orphans(self, patience: float = 0.3, rounds: int = 5) -> list[psutil.Process]:
        """The strangers that stay: a helper that ends with its parent (multiprocessing's resource tracker) does not.

        Where all have gone it looks again: one may have started another on its way out.
        """
        for _ in range(rounds):
            strangers = self.strangers()
            if not strangers:
                break
            with UNSEEN:
                _, staying = psutil.wait_procs(strangers, timeout=patience)
                if staying:
                    return list(staying)
        return []

    def end_strangers(self, groups: Iterable[int] = (), rounds: int = 20) -> None:
        """Kill the strangers, including those that are started meanwhile, and reap them.

        ``groups``: the process groups in which they may be, where none of them can be seen.
        """
        for _ in range(rounds):
            strangers = self.strangers()
            kill_all(strangers, patience=0.2)
            # Of one that ended while the others were looked for, the children may not have been seen.
            if not self._bury() and not strangers:
                break
        if not is_childless() and not children():
            for group in groups:
                with contextlib.suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            end = clock.now() + 0.2
            while not self._bury() and clock.now() < end:
                time.sleep(0.002)

    def _bury(self) -> bool:
        """Reap the strangers among this process's children that have ended; whether there were any."""
        if is_childless():
            return False
        known = self._before
        mine = [p.pid for p in children(recursive=False, dead=True) if p.pid not in known] if known else [-1]
        buried = False
        for pid in mine:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(pid, os.WNOHANG)[0]:
                    buried = True
        return buried


def kill_descendants() -> None:
    """Kill everything below this process, for good."""
    Family(before=frozenset()).end_strangers()


def sweep(run: str, patience: float = 2.0) -> list[str]:
    """Kill every process of the run that names ``run`` in its environment.

    The last net, for a zygote that was itself killed: what it had started is
    no longer below anything that we can walk.
    """
    mine = []
    everybody: list[psutil.Process] = []
    with UNSEEN:
        everybody = list(psutil.process_iter())
    for process in everybody:
        with UNSEEN:
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
        end = clock.now() + patience
        while not self.poll():
            if clock.now() > end:
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
