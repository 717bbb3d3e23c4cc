"""One run from outside: started, followed while it goes on, and ended when it cannot go on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import traceback
from collections.abc import Iterator
from typing import Any

import psutil

from ddpcheck import evidence as ev
from ddpcheck.judging.deadlock import all_waits, certain
from ddpcheck.judging.device_waits import computes
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import exits_told, worlds
from ddpcheck.judging.world import Moment, Process
from ddpcheck.probes.recording.recorder import Recorder
from ddpcheck.run import agent, memory_kills
from ddpcheck.run.computing_processes import Computing
from ddpcheck.run.conclusion import Run
from ddpcheck.run.live_run import LiveRun
from ddpcheck.run.many_nodes import Collector, Sender
from ddpcheck.run.options import Options
from ddpcheck.run.orphaned_ranks import Ranks, own_ranks
from ddpcheck.run.process_activity import Activity
from ddpcheck.run.rank_liveness import Progress
from ddpcheck.run.signals import Asked, Signals, listed
from ddpcheck.run.unended_ranks import is_in_a_call, unended_ranks
from ddpcheck.run.unfollowed_processes import Unfollowed

PERIOD = 0.25
"""Seconds between two looks at the evidence."""

FIRST_WORD = 10.0
"""Seconds for a node whose ranks have joined to send their evidence: it begins at its first look after that."""

SILENCE = 5.0
"""Seconds without a sign of life, at the least, of which a hang's report tells: a busy machine makes processes late."""

PATIENCE = 5.0
"""Seconds that processes have to end in, once they are asked to."""


class NotStarted(Exception):
    """The machine has no room for the program's first process; says so as a sentence."""


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
        self.own = Process("ddpcheck")
        """What this process itself has to say of the run."""
        self.live = LiveRun(options)
        # Of tasks, the one of rank 0 reports, whichever was first.
        self._started_at = time.time() if not options.task else 0.0
        self.unfollowed = Unfollowed()
        self._progress = Progress()
        self._computing = Computing(options.stall_timeout, self._tell_of if options.among_others else None)
        self._activity = Activity(folder.path, options.stall_timeout)
        self._pid = 0
        """The agent, or the script."""
        self._told: Recorder | None = None
        """What this process tells other nodes of its own while the run goes on."""
        self._ranks = Ranks()
        self._family: tuple[psutil.Process, ...] = ()

    def run(self) -> Run:
        """Start the ranks and wait for their end, whichever way it comes."""
        began = time.monotonic()
        killed_before = memory_kills.counted()
        listener = None
        if self.options.among_others:
            with self._harmless():
                listener = Collector.bound(self.options.endpoint)
        stuck = ""
        enough: Moment | None = None
        names = getattr(self.options.torchrun, "signals_to_handle", None)  # no option of older versions
        with Signals(self.options.launched, listed(names)) as signals:
            address = listener.address if listener is not None else None
            try:
                pid = agent.start(self.options, self.folder.path, address, signals, self.live.status)
            except OSError as error:  # of this process: what is forked does not come back here
                raise NotStarted(f"no process could be started for {self.options.script}: {error.strerror}") from error
            self._pid = pid
            if listener is not None:
                with self._harmless():
                    self.collector = Collector(self.folder.path, listener, self._started_at, self.options.limit)
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    signals.listen()
                    break
                signals.wait(PERIOD)
                signals.hand_on(pid)
                why = self._look()
                with self._harmless():
                    if self.unfollowed.is_due(time.monotonic()):
                        self.unfollowed.look(_family_of(pid)[self.options.launched :], self.followed)
                if not (why or stuck or enough or signals.first):
                    enough = self._tell()
                    if enough is not None:
                        self._give_up(pid, enough.at, "an error was found (--fail-fast)")
                if signals.first is not None:
                    with self._harmless():
                        self._attend(pid, signals)
                elif why and not stuck and not enough and not self._signalled():
                    stuck = why
                    self._give_up(pid, time.monotonic(), why)
        with self._harmless():
            self.live.close()
        code = os.waitstatus_to_exitcode(status)
        self._look()  # ranks may have joined and ended since the last look
        if code < 0 and self.options.launched:
            with self._harmless():
                self._ranks.end()
            self._look()
        if signals.again or stuck or enough:
            _reap(self._family)
        elif not self.options.launched:  # torchrun's agent has ended its ranks, and leaves what they had started
            _reap(own_ranks(self._family, self.folder.processes.values()))
        asked = signals.first or (Asked(-code, time.monotonic()) if -code in signals.asking else None)
        if asked is not None and not stuck and not enough and not self.own.records:
            with self._harmless():
                self._note(asked)
        with self._harmless():
            self._tell_of_memory(killed_before)
        if self.options.task:
            with self._harmless():
                self._tell_how_it_ended(pid, code, bool(stuck or enough or signals.first))
        return Run(
            pid=pid,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stuck=stuck,
            enough=enough,
            seconds=time.monotonic() - began,
            launched=self.options.launched,
            command=self.options.command,
            hurried=signals.again,
        )

    def _look(self) -> str:
        """Take in what is new; why the ranks cannot go on, empty where they can."""
        with self._harmless():
            self.folder.read()
            self._ranks.see(self.folder.processes.values())
        with self._harmless():
            self._mirror()
        with self._harmless():
            return self._stuck() or unended_ranks(
                self.folder.processes.values(),
                lambda: _family_of(self._pid)[self.options.launched :],
                self._activity,
                self._last,
                self.options.stall_timeout,
            )
        return ""

    @property
    def followed(self) -> set[int]:
        """The processes of this host that have recorded something."""
        here = socket.gethostname()
        return {p.pid for p in self.folder.processes.values() if p.began is not None and p.began.host == here}

    @staticmethod
    def _now() -> Moment:
        return Moment(at=time.monotonic(), host=socket.gethostname(), wall=time.time())

    def _tell(self) -> Moment | None:
        """Tell the user what is new; when the run is to be ended for it, None where it goes on."""
        if self.sender is not None and self.sender.reached:
            return None  # the node of rank 0 sees all of it
        with self._harmless():
            now = self._now()
            if self.live.look(self.folder.processes, now) is not None:
                return now
        return None

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
        """Begin to send to the node that judges, once it is known."""
        if self.collector is None:
            return
        if self.sender is None:
            told = [j.address for p in self.folder.processes.values() for j in p.of(ev.JudgedBy)]
            # What other nodes have sent here says that it is to be sent here.
            address = next((one for one in told if not one.endswith(self.collector.address)), None)
            if address is None:
                return
            self.sender = Sender(address, self.folder.path, self._started_at, self.options.limit)

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
        for name in self.collector.cut_off & self.folder.processes.keys():
            self.folder.processes[name].gap = "the connection to its node broke"

    @property
    def nodes_notes(self) -> list[str]:
        """What a reader has to know of the evidence of other nodes, as sentences."""
        notes = self.collector.notes if self.collector is not None else []
        return [*notes, *([self.sender.note] if self.sender is not None and self.sender.note else [])]

    def _awaits_ranks(self) -> bool:
        """Whether this node judges a group of which it does not know all ranks."""
        found = worlds(self.folder.processes.values())
        return bool(found) and 0 in {r.rank for r in found[-1]} and len(found[-1].ranks) < found[-1].world_size

    # --- ranks that wait for each other

    def _stuck(self) -> str:
        with self._harmless():
            self._computing.look(self.folder.processes.values(), time.monotonic())
        if self.sender is not None and self.sender.reached:
            return self.sender.stop_asked  # the node of rank 0 sees more
        now = self._now()
        for world in worlds(self.folder.processes.values(), now):
            if any(rank.process.incomplete for rank in world):
                continue  # it may go on out of sight
            if certain(world):
                return "the ranks wait for what can come no more"
            still = min((now.on(r.process) - self._last(r.process) for r in world), default=0.0)
            if still <= self.options.stall_timeout:
                continue
            # A device says nothing of how far it has come in a kernel: for one that computes, others' devices may wait.
            computing = any(computes(r.process) for r in world if not r.gone)
            waiting = [r.rank for r in world if not r.gone and is_in_a_call(r.process)] or [
                number for number, wait in all_waits(world).items() if not (wait.on_device and computing)
            ]
            if waiting:
                return f"rank {waiting[0]} waited, and no rank made progress for {still:.0f} seconds (--stall-timeout)"
        for process in self.folder.processes.values():
            joining, joined = process.last(ev.Joining), process.last(ev.Joined)
            if (
                joining is None
                or process.incomplete
                or (joined is not None and joined.n > joining.n)
                or process.of(ev.Ended)
            ):
                continue
            # Who has not come yet may be computing, and no process of a group so far.
            busy = self._computing.anybody(process.began.host) if process.began is not None else 0.0
            if now.on(process) - max(joining.at, busy) > self.options.stall_timeout:
                waited = now.on(process) - joining.at
                return f"a process had waited for {waited:.0f} seconds in init_process_group (--stall-timeout)"
        return ""

    def _last(self, process: Process) -> float:
        """When a process was last seen to get on, on its own clock."""
        return max(self._progress.last(process), self._computing.last(process))

    def _signalled(self) -> bool:
        """Whether this node or another one has been asked to end."""
        self.folder.read()
        return any(process.of(ev.Signalled) for process in self.folder.processes.values())

    # --- ending it

    def _give_up(self, pid: int, now: float, why: str) -> None:
        """End a run that cannot go on, or is not meant to."""
        with self._harmless():
            self._say(now, ev.Stopped(n=2, at=now, why=why), *self._silent(pid, now))
        with self._harmless():
            if self.collector is not None:
                self.collector.stop(why)
        with self._harmless():
            self._end(pid)

    def _attend(self, pid: int, signals: Signals) -> None:
        """The ranks end on a signal in their own time; on a second one, at once."""
        assert signals.first is not None
        if not self._family:
            self._family = tuple(_family_of(pid))
            self._note(signals.first)
        if signals.again:
            self._family = tuple({*self._family, *_family_of(pid)})
            _reap(self._family)

    def _note(self, asked: Asked) -> None:
        """Put on record that the run was asked to end."""
        self._say(asked.at, ev.Signalled(n=2, at=asked.at, signal=asked.signal))

    def _silent(self, pid: int, now: float) -> Iterator[ev.Silent]:
        """The processes of this run that live, but have given no sign of it for most of the time they were given."""
        ours = {process.pid for process in _family_of(pid)}
        for process in self.folder.processes.values():
            seconds = now - process.sign_at
            told = not process.of(ev.Ended)  # behind that, nothing is
            if told and process.pid in ours and seconds > max(SILENCE, self.options.stall_timeout / 2):
                yield ev.Silent(n=3, at=now, pid=process.pid, seconds=seconds)

    def _say(self, at: float, *said: ev.Record) -> None:
        """Put something on record that only this process knows: for this node, the one that judges, and later."""
        records = (_began(1, at), *said)
        self.own.add(records)
        with contextlib.suppress(OSError):
            writer = Recorder(self.folder.path, 1 << 20)
            for record in records:
                writer.write(record)
            writer.close()

    def _tell_how_it_ended(self, pid: int, code: int, asked: bool) -> None:
        """Put on record how a task ended, which may be a rank: only its parent knows."""
        now = time.monotonic()
        exit_code, ended_by = (code, None) if code >= 0 else (None, -code)
        self._say(now, ev.ChildEnded(n=2, at=now, pid=pid, code=exit_code, signal=ended_by, asked=asked))

    def _tell_of_memory(self, before: int | None) -> None:
        """Where processes were killed: put on record whether the kernel has done it, for want of memory."""
        exits = exits_told(self.folder.processes.values()).values()
        after = memory_kills.counted()
        if any(number == signal.SIGKILL for _, number in exits) and before is not None and after is not None:
            now = time.monotonic()
            self._say(now, ev.MemoryKills(n=2, at=now, number=max(after - before, 0)))

    def _tell_of(self, pid: int, at: float) -> None:
        """Put on record that a process of this host computes, for the node that judges."""
        with contextlib.suppress(OSError):
            if self._told is None:
                self._told = Recorder(self.folder.path, 1 << 24)
                self._told.write(_began(self._told.next()["n"], at))
            self._told.write(ev.Computed(**{**self._told.next(), "at": at}, pid=pid))

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


def _began(n: int, at: float) -> ev.Began:
    """The beginning of what this process itself has to say."""
    begun: dict[str, Any] = {"pid": os.getpid(), "parent": os.getppid(), "host": socket.gethostname()}
    return ev.Began(n=n, at=at, **begun, wall=time.time() + at - time.monotonic(), node=0, argv=[], folder="")


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
