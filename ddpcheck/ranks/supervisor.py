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

from ddpcheck.ranks import messages, stacks
from ddpcheck.ranks.assertion_exchange import Exchange, Judge
from ddpcheck.ranks.captured_output import last_word
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.process_ties import Family, describe
from ddpcheck.ranks.property_examples import Examples
from ddpcheck.ranks.rank_record import StartedRank, WatchedRank
from ddpcheck.ranks.stuck_ranks import Stillness, waits_in_torch
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import EndingKind, Leftover, Plan, RankEnding, RunRecord, WarningRecord
from ddpcheck.vocabulary.wording import signal_name

GRACE = 0.25
"""Seconds that the others have to end by themselves once a rank that failed has gone: until they report it."""

MOST_GRACE = 0.75
"""The same from the first failure on, where the rank that failed takes its time to go."""

REPORT_PATIENCE = 20.0
"""Seconds for the report of the first failure, once the rank has said that it failed:
sixty tracebacks at once take their time on two cores."""

TEARDOWN_GRACE = 2.0
"""Seconds for the fixtures of a rank that has failed, or whose body had ended."""

LEAVE_PATIENCE = 2.0
"""Seconds for a rank's process to be gone after its last word."""


def start_patience(plan: Plan) -> float:
    """Seconds for all ranks to join; interpreters import torch, several on a core, and NCCL's first start is slow."""
    return 60.0 + (10.0 if plan.fresh else 1.0) * plan.world_size + (60.0 if plan.gpus and not plan.simulated else 0.0)


def around(plan: Plan) -> float:
    """Seconds for what is around the body: a property's own are each example's, its fixtures have the usual ones."""
    return max(plan.timeout, 60.0) if plan.examples else plan.timeout


class Interrupted(Exception):
    """The pytest process asked for an end."""


class Supervision:
    """The watch over one run of one test."""

    def __init__(
        self, plan: Plan, started: list[StartedRank], control: Channel, run_dir: str, judge: Judge, family: Family
    ) -> None:
        self.family = family
        self.plan, self.run_dir, self.control = plan, run_dir, control
        self.ranks = [WatchedRank(s) for s in started]
        assert [r.rank for r in self.ranks] == list(range(plan.world_size))
        self.exchange = Exchange(plan.world_size, judge)
        self.examples = Examples(self.ranks)
        self.stillness = Stillness()
        self.told_checks = 0
        """Of the examples that are over: their checks have been told with them."""
        self.warnings: list[WarningRecord] = []
        self.leftovers: list[Leftover] = []
        self.begun = clock.now()
        self.deadline = self.begun + start_patience(plan)
        self.running = False
        self.first_failure: float | None = None
        self.selector = selectors.PollSelector()  # which needs no descriptor
        self.endings: list[RankEnding] = []

    def watch(self) -> RunRecord:
        """Return when no rank is left; raises Interrupted, with no rank left either."""
        try:
            self._give_until(self.deadline)
            self._register()
            while not all(r.gone for r in self.ranks):
                self._turn()
            self.endings = [r.ending() for r in self.ranks]
        finally:
            self._clear()
        return RunRecord(
            plan=self.plan,
            endings=tuple(self.endings),
            checks=tuple(self.exchange.done[self.told_checks :]),
            warnings=tuple(self.warnings),
            leftovers=tuple(self.leftovers),
            seconds=clock.now() - self.begun,
        )

    def _give_until(self, deadline: float) -> None:
        """Set the deadline; the pytest process is told, and holds it should this process not come to it."""
        self.deadline = deadline
        pids = tuple(r.watch.pid for r in self.ranks)
        self.control.send(messages.Watching(until=deadline, begun=self.running, run_dir=self.run_dir, pids=pids))

    # --- one turn

    def _register(self) -> None:
        self.selector.register(self.control, selectors.EVENT_READ, None)
        for r in self.ranks:
            self.selector.register(r.channel, selectors.EVENT_READ, (r, "channel"))
            if r.watch.fd is not None:
                self.selector.register(r.watch.fd, selectors.EVENT_READ, (r, "exit"))

    def _turn(self) -> None:
        events = self.selector.select(self._until_next_timer())
        ended = [r for r in self.ranks if r.watch.fd is None and not r.gone]
        for key, _ in events:
            if key.data is None:
                self._hear_control()
            elif key.data[1] == "channel":
                self._hear(key.data[0])
            else:
                ended.append(key.data[0])
        for r in ended:
            if not r.gone and r.watch.poll():
                self._left(r)
        self._advance()
        self._check_timers()

    def _hear_control(self) -> None:
        try:
            arrived = self.control.receive_ready()
        except Closed as closed:
            raise Interrupted from closed
        for message in arrived:
            match message:
                case messages.Abort() | messages.Stop():
                    raise Interrupted
                case messages.Example():
                    self.examples.begin(message)
                    now = clock.now()
                    self._give_until(now + self.plan.timeout)
                    if not message.final:  # what is for the reader waits for the deadline that it names
                        self.stillness.begin(now)
                    for r in self.ranks:
                        self._send(r, message)
                case messages.Given():
                    for r, given in self.examples.give(message):
                        self._send(r, given)
                case messages.Finish():
                    self.examples.finish()
                    self._give_until(clock.now() + around(self.plan))

    def _hear(self, r: WatchedRank) -> None:
        try:
            arrived = r.channel.receive_ready()
        except Closed:
            # The end of a process is told by its exit alone: a child of the
            # rank may keep the channel open, and a test may close it.
            self.selector.unregister(r.channel)
            return
        for message in arrived:
            self._take(r, message)

    def _take(self, r: WatchedRank, message: messages.AnyMessage) -> None:
        if r.kind not in (None, "finished"):
            return  # judged already: the signal that took its stack may have set it going again
        match message:
            case messages.Joined():
                r.joined = True
                r.captured.open(r.watch.pid)
            case messages.CouldNotStart(text=text, reaction=reaction):
                r.text, r.reaction = text, reaction
                r.end("never-started")
                self._note_failure()
            case messages.Reported(report=report, part=part):
                (r.subtests if part else r.reports).append(report)
                if r.failed:
                    self._note_failure()
            case messages.Failing(raised=raised):
                r.raised = r.raised or raised
                self._note_failure()
            case messages.Evidence():
                self.exchange.arrive(r.rank, message)
            case messages.Answer(facts=facts):
                self.exchange.answer(r.rank, facts)
            case messages.Following():
                self.examples.follow(r)
            case messages.Asked():
                self.examples.ask(r, message)
            case messages.Noted():
                r.note(message)
            case messages.ExampleEnded(end=end):
                self.examples.end(r, message)
                if end.status == "failed":
                    self._note_failure()
            case messages.BodyEnded():
                r.body_ended = True
                self.examples.leave(r)
            case messages.Warned(warning=warning):
                self.warnings.append(warning)
            case messages.Done(leftovers=leftovers, leaving=leaving):
                r.done = True
                self.leftovers.extend(leftovers)
                if leaving is not None:
                    r.text, r.left_with = leaving
                    r.end("exit")
                    self._note_failure()
                r.end("finished")
            case _:
                raise AssertionError(f"a rank sent {message!r}")

    def _left(self, r: WatchedRank) -> None:
        """The process is gone: hear its last words, then say what that was."""
        r.channel.sock.setblocking(False)
        with contextlib.suppress(Closed, BlockingIOError):
            while True:
                for message in r.channel.receive_ready():
                    self._take(r, message)
        with contextlib.suppress(KeyError):
            self.selector.unregister(r.channel)
        if r.watch.fd is not None:
            with contextlib.suppress(KeyError):
                self.selector.unregister(r.watch.fd)
        r.gone, r.gone_at = True, clock.now()
        if r.kind is None:
            r.stack = stacks.read(self.run_dir, r.rank)
            r.text = last_word(self.run_dir, r.rank)
            if self.running:
                r.end("died")
            else:
                code, number = r.watch.exit_code, r.watch.signal
                r.text = r.text or f"its process ended with exit code {code}" if number is None else signal_name(number)
                r.end("never-started")
            self._note_failure()

    # --- what follows from it

    def _note_failure(self) -> None:
        if self.first_failure is None:
            self.first_failure = clock.now()

    def _send(self, r: WatchedRank, message: messages.Message) -> None:
        with contextlib.suppress(Closed):  # its exit will tell
            r.channel.send(message)

    def _advance(self) -> None:
        if not self.running and all(r.joined for r in self.ranks):
            self.running = True
            self._give_until(clock.now() + around(self.plan))  # told before a rank can do anything
            for r in self.ranks:
                self._send(r, messages.Go())
        over = {r.rank for r in self.ranks if r.over}
        self._advance_examples(over)
        if self.first_failure is None:
            for rank, message in self.exchange.step(gone=over).items():
                self._send(self.ranks[rank], message)
                if isinstance(message, messages.Verdict) and message.violated:
                    self.ranks[rank].verdict = message.number
        if len(over) == len(self.ranks) or self.first_failure is not None:
            for r in self.ranks:
                if r.body_ended and not r.released:
                    r.released = True
                    self._send(r, messages.Release())
        nobody_waits = all(r.done or r.gone for r in self.ranks) or self.first_failure is not None
        for r in self.ranks:
            # One that was skipped leaves at once: the end of its connections is what tells the others.
            if r.done and not r.dismissed and (nobody_waits or not r.body_ended):
                r.dismissed = True
                self._send(r, messages.Leave())

    def _advance_examples(self, over: set[int]) -> None:
        """Pass on what the ranks of a property and the engine have for each other."""
        if not self.plan.examples:
            return
        for r, message in self.examples.to_ranks(self.first_failure is not None):
            self._send(r, message)
        over |= {r.rank for r in self.ranks if r.resting}
        if self.first_failure is None:
            told = self.examples.to_engine(self.exchange.done[self.told_checks :])
            if isinstance(told, messages.ExampleOver):
                self.told_checks = len(self.exchange.done)
            if told is not None:
                self.control.send(told)
            if self.examples.at_rest:
                self.deadline = float("inf")  # the engine may take its time
                self.stillness.end()

    def _awaited_report(self) -> WatchedRank | None:
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
        now = clock.now()
        if self.first_failure is None:
            timer = min(self.deadline, self.exchange.until or self.deadline, self.stillness.due)
        else:
            grace = self._grace_end(self.first_failure)
            timer = min((t for t in (grace, self.first_failure + TEARDOWN_GRACE) if t > now), default=self.deadline)
        pause = max(0.01, timer - now)
        return 0.01 if any(r.watch.fd is None for r in self.ranks) else min(pause, 1.0)

    def _check_timers(self) -> None:
        now = clock.now()
        if not (living := [r for r in self.ranks if not r.gone]):
            return
        if self.first_failure is not None:
            awaited = self._awaited_report() if now < self.first_failure + REPORT_PATIENCE else None
            if now >= self.first_failure + TEARDOWN_GRACE:
                # A teardown after an expected failure has the test's time; it is not expected to fail.
                expected = [r for r in living if r.failed_as_expected and not r.done and not self.plan.examples]
                self._stop(expected if now >= self.deadline else [], "hung")
                self._stop([r for r in living if r is not awaited and r not in expected], "stopped")
            elif now >= self._grace_end(self.first_failure):
                # A rank that has had its say is tearing down; the others are stuck.
                self._stop([r for r in living if not r.over and r is not awaited], "stopped")
        elif now >= self.deadline:
            if not self.running:
                for r in living:
                    r.text = "no process group within the time for starting" if not r.joined else ""
                self._stop([r for r in living if not r.joined], "never-started")
                self._stop([r for r in living if r.joined], "stopped")
                self._note_failure()
            else:
                self._hung(living)
        elif self.stillness.suspect(now, {r.rank: r.watch.pid for r in living}):
            self.stillness.end()
            running = {r.rank: r.watch.pid for r in living if not r.resting and not self._waiting_in(r)}
            found = stacks.take(self.run_dir, running)
            if running and all(waits_in_torch(stack) for stack in found.values()):
                self._hung(living, found)
        elif all(r.done for r in living) and now >= max(r.at for r in living) + LEAVE_PATIENCE:
            self._stop(living, "finished")

    def _hung(self, living: list[WatchedRank], found: dict[int, str] | None = None) -> None:
        """The ranks that still run will not end; with the stacks that are ``found``, no others are taken."""
        stuck = [r for r in living if not r.done and not r.resting and (not r.body_ended or r.released)]
        self._stop(stuck, "hung", found)
        self._stop([r for r in living if r not in stuck], "stopped", found)
        self._note_failure()

    def _waiting_in(self, r: WatchedRank) -> str:
        """Where a rank waits for the others, if that is where we know of it."""
        waiting, asked = self.exchange.waiting.get(r.rank), self.examples.asked.get(r.rank)
        if waiting is not None:
            return f"{waiting.title} at {waiting.where}"
        return f"a draw at {asked.where}" if asked is not None else ""

    def _stop(self, ranks: list[WatchedRank], kind: EndingKind, found: dict[int, str] | None = None) -> None:
        """Take the stacks of these ranks, if none have been found, then end them."""
        if not ranks:
            return
        running = [r for r in ranks if r.kind is None]
        for r in running:
            r.end(kind)
            r.waiting_in = self._waiting_in(r)
        if kind != "finished":
            shown = {r.rank: r.watch.pid for r in running if not r.resting}
            found = stacks.take(self.run_dir, shown) if found is None else found
            for rank in shown.keys() & found.keys():
                self.ranks[rank].stack = found[rank]
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
        if all(r.kind == "finished" and not r.failed for r in self.ranks):
            known = {left.name for left in self.leftovers}
            names = [describe(p) for p in self.family.orphans()]
            self.leftovers.extend(Leftover(kind="process", name=n) for n in names if n not in known)
        self.family.end_strangers(r.watch.pid for r in self.ranks)
