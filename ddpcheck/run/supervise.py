"""One run from outside: started, followed while it goes on, and ended when it cannot go on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Iterator
from types import FrameType

import psutil

from ddpcheck import evidence as ev
from ddpcheck.checks.waiting import certain
from ddpcheck.checks.worlds import worlds
from ddpcheck.model import Struct
from ddpcheck.run import agent
from ddpcheck.run.folder import Folder
from ddpcheck.run.mirror import Collector, Sender
from ddpcheck.run.options import Options
from ddpcheck.run.orphans import Ranks

PERIOD = 0.25
"""Seconds between two looks at the evidence."""

FIRST_WORD = 10.0
"""Seconds for a node whose ranks have joined to send their evidence: it begins at its first look after that."""

PATIENCE = 5.0
"""Seconds that processes have to end in, once they are asked to."""


class Run(Struct, frozen=True, kw_only=True):
    """What was seen of a run from outside."""

    pid: int
    """Of the agent, or the script."""
    exit_code: int | None
    signal: int | None
    stuck: str = ""
    """Why it was ended: what was certain, or how long a rank had waited; empty if it ended by itself."""
    interrupted: bool = False
    seconds: float = 0.0


class Supervisor:
    """Starts a run, and stays with it to its end."""

    def __init__(self, options: Options, folder: Folder) -> None:
        self.options = options
        self.folder = folder
        self.collector: Collector | None = None
        """Takes evidence of other nodes; None where there is one node."""
        self.sender: Sender | None = None
        """Sends this node's evidence to the node that judges; None on that one."""
        self.defects: list[str] = []
        """What went wrong in here: tracebacks, each once."""
        self._interrupts = 0
        self._ranks = Ranks()
        self._family: tuple[psutil.Process, ...] = ()

    def run(self) -> Run:
        """Start the ranks and wait for their end, whichever way it comes."""
        began = time.monotonic()
        listener = None
        if self.options.nodes > 1:
            with self._harmless():
                listener = Collector.bound()
        pid = agent.start(self.options, self.folder.path, listener.address if listener is not None else None)
        if listener is not None:
            with self._harmless():
                self.collector = Collector(self.folder.path, listener)
        stuck = ""
        with self._signals(pid):
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    break
                time.sleep(PERIOD)
                why = self._look()
                if why and not stuck:
                    stuck = why
                    with self._harmless():
                        if self.collector is not None:
                            self.collector.stop(why)
                    with self._harmless():
                        self._end(pid)
        code = os.waitstatus_to_exitcode(status)
        self._look()  # ranks may have joined and ended since the last look
        if code < 0 and self.options.launched:
            with self._harmless():
                self._ranks.end()
            self._look()
        _reap(self._family)
        return Run(
            pid=pid,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stuck=stuck,
            interrupted=bool(self._interrupts),
            seconds=time.monotonic() - began,
        )

    def _look(self) -> str:
        """Take in what is new; why the ranks cannot go on, empty where they can."""
        with self._harmless():
            self.folder.read()
            self._ranks.see(self.folder.processes.values())
        with self._harmless():
            self._mirror()
        with self._harmless():
            return self._stuck()
        return ""

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        """Do what may fail for a reason of ours: that is put on record, and the run goes on."""
        try:
            yield
        except Exception:
            text = traceback.format_exc()
            if text not in self.defects:
                self.defects.append(text)

    # --- several nodes

    def _mirror(self) -> None:
        """Send what is new to the node that judges, once it is known."""
        if self.collector is None:
            return
        if self.sender is None:
            told = [j.address for p in self.folder.processes.values() for j in p.of(ev.JudgedBy)]
            # What other nodes have sent here says that it is to be sent here.
            address = next((one for one in told if not one.endswith(self.collector.address)), None)
            if address is None:
                return
            try:
                self.sender = Sender(address)
            except Exception:  # it cannot be reached, or has gone: this node is judged by itself
                self.collector = None
                return
        with contextlib.suppress(OSError):
            self.sender.push(self.folder.path)

    def gather(self, seconds: float) -> None:
        """Wait until the other nodes have sent all of their evidence, those included that have yet to begin."""
        if self.collector is None:
            return
        end = time.monotonic() + FIRST_WORD
        while self._awaits_ranks() and time.monotonic() < end:
            time.sleep(PERIOD)
            self.folder.read()
        self.collector.wait(seconds)
        self.folder.read()

    def _awaits_ranks(self) -> bool:
        """Whether this node judges a group of which it does not know all ranks."""
        found = worlds(self.folder.processes.values())
        return bool(found) and 0 in {r.rank for r in found[-1]} and len(found[-1].ranks) < found[-1].world_size

    # --- ranks that wait for each other

    def _stuck(self) -> str:
        if self.sender is not None:
            return self.sender.stop_asked  # the node of rank 0 sees more
        now = time.monotonic()
        for world in worlds(self.folder.processes.values(), finished=False):
            if any(rank.process.incomplete for rank in world):
                continue  # it may go on out of sight
            if certain(world, now):
                return "the ranks wait for what can come no more"
            for rank in world:
                pulse = rank.process.last(ev.Pulse)
                if pulse is None or pulse.since is None or pulse.pending is None or rank.gone:
                    continue
                last = rank.process.records[-1]
                waited = now - pulse.since
                if last.n <= pulse.n and waited > self.options.stall_timeout:
                    return f"rank {rank.rank} had waited for {waited:.0f} seconds (--stall-timeout)"
        for process in self.folder.processes.values():
            joining, joined = process.last(ev.Joining), process.last(ev.Joined)
            if (
                joining is None
                or process.incomplete
                or (joined is not None and joined.n > joining.n)
                or process.of(ev.Ended)
            ):
                continue
            if (waited := now - joining.at) > self.options.stall_timeout:
                return f"a process had waited for {waited:.0f} seconds in init_process_group (--stall-timeout)"
        return ""

    # --- ending it

    def _end(self, pid: int) -> None:
        """Ask all processes of the run to end; those that do not, are ended."""
        family = _family_of(pid)
        self._family = tuple(family)
        ranks = [p for p in family if p.pid != pid]
        if not ranks:  # a script that was run as it is, and hangs before it has started any
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for process in ranks:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(ranks, timeout=PATIENCE)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()

    @contextlib.contextmanager
    def _signals(self, pid: int) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the ranks, and the verdict is told all the same; a second one ends them at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._interrupts += 1
            self._family = tuple(_family_of(pid))
            if self._interrupts == 1:
                with contextlib.suppress(ProcessLookupError):
                    # A terminal's Ctrl-C has reached the agent already.
                    os.kill(pid, signal.SIGTERM if number == signal.SIGTERM else signal.SIGINT)
            else:
                for process in self._family:
                    with contextlib.suppress(psutil.Error):
                        process.kill()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _family_of(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except (psutil.Error, OSError):
        return []


def _reap(family: tuple[psutil.Process, ...]) -> None:
    """Nothing of a run that was ended outlives it."""
    for process in family:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
