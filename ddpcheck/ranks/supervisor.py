"""The one place where every ending of a rank becomes a value.

It watches all ranks of a test at once, against one monotonic deadline: their
messages, their exits, and the pytest process itself. It never waits for one
rank before another, and it orders failures by the clock.

=================  ==========================================================
ending             when
=================  ==========================================================
``finished``       the rank went through every phase and said so
``died``           a signal or an exit came before that
``hung``           still in the test at the deadline
``stopped``        ended here, because another rank had failed
``never-started``  no process group, or no rank
``exit``           the test called ``pytest.exit()``
=================  ==========================================================
"""

from __future__ import annotations

import contextlib
import selectors
import time
from typing import NamedTuple

from ddpcheck.model import EndingKind, Leftover, PhaseReport, Plan, Raised, RankEnding, RunRecord, WarningRecord
from ddpcheck.ranks import stacks, wire
from ddpcheck.ranks.captured import CapturedOutput
from ddpcheck.ranks.exchange import Exchange, Judge
from ddpcheck.ranks.processes import ExitWatch, Family, describe
from ddpcheck.wording import signal_name

GRACE = 0.25
"""Seconds that the others have to end by themselves once a rank that failed has gone: for the
error of a lost connection to arrive, which is worth more to a reader than a stack."""

MOST_GRACE = 0.75
"""The same from the first failure on, where the rank that failed takes its time to go."""

REPORT_PATIENCE = 20.0
"""Seconds for the report of the first failure, once the rank has said that it failed:
sixty tracebacks at once take their time on two cores."""

TEARDOWN_GRACE = 2.0
"""Seconds for the fixtures of a rank that has failed, or whose body had ended."""

LEAVE_PATIENCE = 2.0
"""Seconds for a rank's process to be gone after its last word."""


def start_patience(world_size: int, fresh: bool) -> float:
    """Seconds for all ranks to join; interpreters import torch, several on a core."""
    return 60.0 + (10.0 if fresh else 1.0) * world_size


class Interrupted(Exception):
    """The pytest process asked for an end."""


class StartedRank(NamedTuple):
    """A process that was started as a rank, and the supervisor's end of its channel."""

    rank: int
    watch: ExitWatch
    channel: wire.Channel


class _Rank:
    """What is known of one rank so far."""

    def __init__(self, started: StartedRank) -> None:
        self.rank, self.watch, self.channel = started
        self.joined = self.body_ended = self.released = self.done = self.dismissed = self.gone = False
        self.reports: list[PhaseReport] = []
        self.raised: Raised | None = None
        self.kind: EndingKind | None = None
        self.at = self.gone_at = 0.0
        self.verdict: int | None = None
        self.stack = self.waiting_in = self.text = ""
        self.reaction = False
        self.captured = CapturedOutput()

    @property
    def failed(self) -> bool:
        """This rank's own word or end makes the test fail, or at least not pass plainly."""
        if self.kind in ("died", "never-started", "hung", "exit"):
            return True
        return any(r.outcome == "failed" or _xfailed(r) for r in self.reports)

    @property
    def over(self) -> bool:
        """Nothing more will come from the body of this rank."""
        return self.body_ended or self.done or self.gone or any(r.outcome != "passed" for r in self.reports)

    @property
    def owes_report(self) -> bool:
        """This rank has raised, and is still at work on its traceback."""
        return self.raised is not None and not self.gone and all(r.outcome == "passed" for r in self.reports)

    def end(self, kind: EndingKind) -> None:
        if self.kind is None:
            self.kind, self.at = kind, time.monotonic()

    def ending(self) -> RankEnding:
        assert self.kind is not None
        return RankEnding(
            rank=self.rank,
            kind=self.kind,
            at=self.at,
            reports=tuple(self.reports),
            body_ended=self.body_ended,
            raised=self.raised,
            verdict=self.verdict,
            exit_code=self.watch.exit_code if self.kind == "died" else None,
            signal=self.watch.signal if self.kind == "died" else None,
            stack=self.stack,
            waiting_in=self.waiting_in,
            text=self.text,
            reaction=self.reaction,
            output=self.captured.read() if self.kind in ("died", "hung", "stopped", "never-started") else (),
        )


def _xfailed(report: PhaseReport) -> bool:
    return report.outcome == "skipped" and "wasxfail" in report.data


class Supervision:
    """The watch over one run of one test."""

    def __init__(
        self, plan: Plan, started: list[StartedRank], control: wire.Channel, run_dir: str, judge: Judge, family: Family
    ) -> None:
        self.family = family
        self.plan, self.run_dir, self.control = plan, run_dir, control
        self.ranks = [_Rank(s) for s in started]
        assert [r.rank for r in self.ranks] == list(range(plan.world_size))
        self.exchange = Exchange(plan.world_size, judge)
        self.warnings: list[WarningRecord] = []
        self.leftovers: list[Leftover] = []
        self.begun = time.monotonic()
        self.deadline = self.begun + start_patience(plan.world_size, plan.fresh)
        self.running = False
        self.first_failure: float | None = None
        self.selector = selectors.DefaultSelector()
        self.endings: list[RankEnding] = []

    def watch(self) -> RunRecord:
        """Return when no rank is left; raises Interrupted, with no rank left either."""
        try:
            self._register()
            while not all(r.gone for r in self.ranks):
                self._turn()
            self.endings = [r.ending() for r in self.ranks]
        finally:
            self._clear()
        return RunRecord(
            plan=self.plan,
            endings=tuple(self.endings),
            checks=tuple(self.exchange.done),
            warnings=tuple(self.warnings),
            leftovers=tuple(self.leftovers),
            seconds=time.monotonic() - self.begun,
        )

    # --- one turn

    def _register(self) -> None:
        self.selector.register(self.control, selectors.EVENT_READ, None)
        for r in self.ranks:
            self.selector.register(r.channel, selectors.EVENT_READ, (r, "channel"))
            if r.watch.fd is not None:
                self.selector.register(r.watch.fd, selectors.EVENT_READ, (r, "exit"))

    def _turn(self) -> None:
        events = self.selector.select(self._until_next_timer())
        for key, _ in events:
            if key.data is None:
                self._hear_control()
            elif key.data[1] == "channel":
                self._hear(key.data[0])
        for r in self.ranks:
            if not r.gone and r.watch.poll():
                self._left(r)
        self._advance()
        self._check_timers()

    def _hear_control(self) -> None:
        try:
            messages = self.control.receive_ready()
        except wire.Closed as closed:
            raise Interrupted from closed
        if any(isinstance(m, wire.Abort | wire.Stop) for m in messages):
            raise Interrupted

    def _hear(self, r: _Rank) -> None:
        try:
            messages = r.channel.receive_ready()
        except wire.Closed:
            # The end of a process is told by its exit alone: a child of the
            # rank may keep the channel open, and a test may close it.
            self.selector.unregister(r.channel)
            return
        for message in messages:
            self._take(r, message)

    def _take(self, r: _Rank, message: wire.AnyMessage) -> None:
        if r.kind not in (None, "finished"):
            return  # judged already: the signal that took its stack may have set it going again
        match message:
            case wire.Joined():
                r.joined = True
                r.captured.open(r.watch.pid)
            case wire.CouldNotStart(text=text, reaction=reaction):
                r.text, r.reaction = text, reaction
                r.end("never-started")
                self._note_failure()
            case wire.Reported(report=report):
                r.reports.append(report)
                if r.failed:
                    self._note_failure()
            case wire.Failing(raised=raised):
                r.raised = r.raised or raised
                self._note_failure()
            case wire.Evidence():
                self.exchange.arrive(r.rank, message)
            case wire.Answer(facts=facts):
                self.exchange.answer(r.rank, facts)
            case wire.BodyEnded():
                r.body_ended = True
            case wire.Warned(warning=warning):
                self.warnings.append(warning)
            case wire.Done(leftovers=leftovers, exit_reason=reason):
                r.done = True
                self.leftovers.extend(leftovers)
                if reason is not None:
                    r.text = reason
                    r.end("exit")
                    self._note_failure()
                r.end("finished")
            case _:
                raise AssertionError(f"a rank sent {message!r}")

    def _left(self, r: _Rank) -> None:
        """The process is gone: hear its last words, then say what that was."""
        r.channel.sock.setblocking(False)
        with contextlib.suppress(wire.Closed, BlockingIOError):
            while True:
                for message in r.channel.receive_ready():
                    self._take(r, message)
        with contextlib.suppress(KeyError):
            self.selector.unregister(r.channel)
        if r.watch.fd is not None:
            with contextlib.suppress(KeyError):
                self.selector.unregister(r.watch.fd)
        r.gone, r.gone_at = True, time.monotonic()
        if r.kind is None:
            r.stack = stacks.read(self.run_dir, r.rank)
            if self.running:
                r.end("died")
            else:
                code, number = r.watch.exit_code, r.watch.signal
                r.text = f"its process ended with exit code {code}" if number is None else signal_name(number)
                r.end("never-started")
            self._note_failure()

    # --- what follows from it

    def _note_failure(self) -> None:
        if self.first_failure is None:
            self.first_failure = time.monotonic()

    def _send(self, r: _Rank, message: wire.Message) -> None:
        with contextlib.suppress(wire.Closed):  # its exit will tell
            r.channel.send(message)

    def _advance(self) -> None:
        if not self.running and all(r.joined for r in self.ranks):
            self.running = True
            self.deadline = time.monotonic() + self.plan.timeout
            for r in self.ranks:
                self._send(r, wire.Go())
        over = {r.rank for r in self.ranks if r.over}
        if self.first_failure is None:
            for rank, message in self.exchange.step(gone=over).items():
                self._send(self.ranks[rank], message)
                if isinstance(message, wire.Verdict) and message.violated:
                    self.ranks[rank].verdict = message.number
        if len(over) == len(self.ranks) or self.first_failure is not None:
            for r in self.ranks:
                if r.body_ended and not r.released:
                    r.released = True
                    self._send(r, wire.Release())
        nobody_waits = all(r.done or r.gone for r in self.ranks) or self.first_failure is not None
        for r in self.ranks:
            # One that was skipped leaves at once: the end of its connections is what tells the others.
            if r.done and not r.dismissed and (nobody_waits or not r.body_ended):
                r.dismissed = True
                self._send(r, wire.Leave())

    def _awaited_report(self) -> _Rank | None:
        """The rank whose traceback the reader will be shown, while it is being worked out."""
        owing = [r for r in self.ranks if r.owes_report and r.raised is not None]
        own = [r for r in owing if r.raised and not r.raised.reaction]
        if not own and any(r.failed for r in self.ranks):
            return None
        return min(own or owing, key=lambda r: (r.raised.at, r.rank) if r.raised else (0.0, 0), default=None)

    def _grace_end(self, first_failure: float) -> float:
        """When ranks that still run are stopped: a moment after a rank that failed has gone."""
        gone = [r.gone_at + GRACE for r in self.ranks if r.gone and (r.failed or r.raised is not None)]
        return min([*gone, first_failure + MOST_GRACE])

    def _until_next_timer(self) -> float:
        now = time.monotonic()
        if self.first_failure is None:
            timer = min(self.deadline, self.exchange.until or self.deadline)
        else:
            grace = self._grace_end(self.first_failure)
            timer = grace if now < grace else self.first_failure + TEARDOWN_GRACE
        pause = max(0.01, timer - now)
        polled = any(r.watch.fd is None for r in self.ranks)
        return 0.01 if polled else min(pause, 1.0)

    def _check_timers(self) -> None:
        now = time.monotonic()
        living = [r for r in self.ranks if not r.gone]
        if not living:
            return
        if self.first_failure is not None:
            awaited = self._awaited_report() if now < self.first_failure + REPORT_PATIENCE else None
            if now >= self.first_failure + TEARDOWN_GRACE:
                self._stop([r for r in living if r is not awaited], "stopped")
            elif now >= self._grace_end(self.first_failure):
                # A rank that has had its say is tearing down; the others are stuck.
                self._stop([r for r in living if not r.over and r is not awaited], "stopped")
        elif now >= self.deadline:
            if not self.running:
                for r in living:
                    r.text = "no process group within the time for starting" if not r.joined else ""
                self._stop([r for r in living if not r.joined], "never-started")
                self._stop([r for r in living if r.joined], "stopped")
            else:
                stuck = [r for r in living if not r.done and (not r.body_ended or r.released)]
                self._stop(stuck, "hung")
                self._stop([r for r in living if r not in stuck], "stopped")
            self._note_failure()
        elif all(r.done for r in living) and now >= max(r.at for r in living) + LEAVE_PATIENCE:
            self._stop(living, "finished")

    def _stop(self, ranks: list[_Rank], kind: EndingKind) -> None:
        """Take the stacks of these ranks, then end them."""
        if not ranks:
            return
        running = [r for r in ranks if r.kind is None]
        for r in running:
            r.end(kind)
            waiting = self.exchange.waiting.get(r.rank)
            r.waiting_in = f"{waiting.title} at {waiting.where}" if waiting else ""
        if kind != "finished":
            for rank, stack in stacks.take(self.run_dir, {r.rank: r.watch.pid for r in running}).items():
                self.ranks[rank].stack = stack
        for r in ranks:
            r.watch.kill()

    def _clear(self) -> None:
        """Leave nothing behind: no rank, and no process that a rank had started."""
        self.selector.close()
        for r in self.ranks:
            r.watch.kill()
        for r in self.ranks:
            r.watch.wait(5.0)
            r.watch.close()
            r.channel.close()
            r.captured.close()
        passed = all(r.kind == "finished" and not r.failed for r in self.ranks)
        if passed:
            known = {left.name for left in self.leftovers}
            names = [describe(p) for p in self.family.orphans()]
            self.leftovers.extend(Leftover(kind="process", name=n) for n in names if n not in known)
        self.family.end_strangers()
