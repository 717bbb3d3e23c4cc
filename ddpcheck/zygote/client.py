"""The pytest process's end of the runtime: it asks a zygote for runs, and replaces it where it has ended."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ddpcheck.gpus.gpu_inventory import NobodyToAsk
from ddpcheck.ranks import messages, private_folders, stacks
from ddpcheck.ranks.channel import Closed
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import EndingKind, Machine, Plan, RankEnding, RunRecord, never_started
from ddpcheck.zygote.link import Unanswered, Zygote

ABORT_PATIENCE = 1.5
"""Seconds to end the ranks of an interrupted test; it cannot while it imports a module that does not return."""

START_PATIENCE = 60.0
"""Seconds that a zygote may be stopped where it is not a test that it is asked for."""


class InternalError(Exception):
    """ddpcheck itself failed; never the user's program."""


class Launcher:
    """Runs tests in ranks; holds the one zygote of a session."""

    def __init__(
        self, options: dict[str, Any], args: list[str], workerinput: dict[str, Any], cwd: str, show_output: bool
    ) -> None:
        self._options, self._args, self._workerinput, self._cwd = options, args, workerinput, cwd
        self._show_output = show_output
        self._zygote: Zygote | None = None
        self._tidied = False
        self._fresh_paths: dict[str, str] = {}
        self._endless: dict[str, str] = {}
        """The files of which the import did not end, and what was said of that."""
        self._forked_paths: set[str] = set()
        """The files of which ranks were forked, and a test begun: importing them does no harm."""
        self.on_fresh: Callable[[str, str], None] = lambda path, reason: None
        """Called with a path and a reason when the ranks of its tests cannot be forked."""
        self.on_wait: Callable[[str], None] = lambda text: None
        """Called with a sentence when a test waits long for GPUs."""

    # --- the zygote's life

    def start(self) -> Zygote:
        """Start the zygote, if it does not run; returns at once, while it still imports torch."""
        if self._zygote is None:
            if not self._tidied:
                self._tidied = True
                private_folders.remove_abandoned()
            self._zygote = Zygote(
                messages.Hello(
                    options=self._options,
                    args=self._args,
                    sys_path=list(sys.path),
                    cwd=self._cwd,
                    workerinput=self._workerinput,
                    runtime_dir="",
                    interruptible=signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
                ),
                self._show_output,
            )
        return self._zygote

    def stop(self) -> None:
        """End the zygote and everything below it."""
        if self._zygote is None:
            return
        try:
            self._zygote.finish()
        finally:
            self._discard()

    def drop(self) -> None:
        """End the zygote at once, if it owes an answer that nobody waits for any more."""
        if self._zygote is not None and self._zygote.asked:
            self._zygote.kill()
            self._discard()

    def _discard(self) -> str:
        """Forget the zygote; returns how it ended."""
        zygote, self._zygote = self._zygote, None
        return zygote.discard() if zygote is not None else ""

    # --- what it is asked

    def prepare(self, path: str) -> None:
        """Have a file collected in the background, so that its first test need not wait."""
        zygote = self.start()
        if path not in self._fresh_paths:
            zygote.prepared.add(path)
            with contextlib.suppress(Closed):
                zygote.send(messages.Collect(path=path))

    def machine(self) -> Machine:
        """The GPUs that ranks would see, and the NCCL that they would use; raises NobodyToAsk where nobody can tell."""
        zygote = self.start()
        try:
            return self._await_ready(zygote).machine
        except Closed:
            raise NobodyToAsk(self._discard()) from None
        except Unanswered as error:
            zygote.kill()
            self._discard()
            raise NobodyToAsk(str(error)) from None

    def run(self, plan: Plan) -> RunRecord:
        """Run one test in its ranks and return what happened; raises InternalError if ddpcheck failed."""
        record = self.begin(plan)
        if record is None:
            raise InternalError("the ranks of a test wait for examples that it does not have")
        return record

    def begin(self, plan: Plan) -> RunRecord | None:
        """Run a test until its end, or until all ranks of a property wait for examples, where there is nothing yet."""
        if plan.path in self._endless:
            return never_started(plan, self._endless[plan.path])
        while True:
            zygote = self.start()
            try:
                self._await_ready(zygote, plan.path)
                fresh = plan.path in self._fresh_paths
                message = self._ask(zygote, messages.Run(plan=replace(plan, fresh=fresh)), plan)
            except Unanswered as error:
                record = self._given_up(zygote, plan, str(error))
                if plan.path not in self._endless and zygote.collecting in self._endless:
                    continue  # the import of another does not end: the next zygote collects this file alone
                return record
            except Closed:
                if zygote.watching is not None and zygote.watching.begun:
                    return _lost(plan, zygote, self._discard(), "stopped")
                others = zygote.prepared - {plan.path}
                text = self._discard()
                if plan.path in self._fresh_paths:
                    return _none_started(plan, text)
                if others or plan.path in self._forked_paths:
                    self._forked_paths.discard(plan.path)
                    continue  # the import of another may have crashed it: the next zygote collects this file alone
                # Most likely importing the tests crashed it: with ranks of
                # their own it is seen which rank, and the others' tests go on.
                self._start_afresh(plan.path, text)
                continue
            if not fresh:
                self._forked_paths.add(plan.path)
            match message:
                case messages.Ran(record=record):
                    return record
                case messages.AllFollowing():
                    return None
                case messages.Spoiled(path=path, reason=reason):
                    self._start_afresh(path, f"importing it, {reason}")
                    self.stop()
                case messages.Broken(text=text):
                    raise InternalError(text)
                case _:
                    raise InternalError(f"the zygote sent {message!r}")

    def tell(self, plan: Plan, message: messages.Message) -> messages.ExampleOver | messages.Asked | RunRecord:
        """Tell the ranks of a property, which are alive, and return what follows from it."""
        zygote = self._zygote
        if zygote is None:
            return _none_started(plan, "the process that ranks come from has ended")
        try:
            answer = self._ask(zygote, message, plan)
        except Closed:
            return _lost(plan, zygote, self._discard(), "stopped")
        except Unanswered as error:
            return self._given_up(zygote, plan, str(error))
        match answer:
            case messages.Ran(record=record):
                return record
            case messages.ExampleOver() | messages.Asked():
                return answer
            case messages.Broken(text=text):
                raise InternalError(text)
            case _:
                raise InternalError(f"the zygote sent {answer!r}")

    def abort(self) -> None:
        """End the ranks of a property at once."""
        if self._zygote is not None:
            self._zygote.abort(ABORT_PATIENCE)

    def _start_afresh(self, path: str, reason: str) -> None:
        self._fresh_paths[path] = reason
        self.on_fresh(path, reason)

    def _await_ready(self, zygote: Zygote, path: str | None = None) -> messages.Ready:
        """Wait until the zygote has started; note whether it can fork at all, for this file's tests."""
        if zygote.ready is None:
            message = zygote.receive(START_PATIENCE)
            assert isinstance(message, messages.Ready), message
            zygote.ready = message
        if path is not None and zygote.ready.cannot_fork and path not in self._fresh_paths:
            self._start_afresh(path, zygote.ready.cannot_fork)
        return zygote.ready

    def _ask(self, zygote: Zygote, message: messages.Message, plan: Plan) -> messages.AnyMessage:
        zygote.send(message)
        try:
            while isinstance(answer := zygote.receive(plan.timeout), messages.Waiting):
                self.on_wait(answer.text)
            return answer
        except KeyboardInterrupt:
            # The ranks first: nothing of them may be left when pytest says that it was interrupted.
            zygote.abort(ABORT_PATIENCE)
            raise
        except (Closed, Unanswered):
            raise
        except BaseException:
            # A signal handler's, such as pytest-timeout's: the next test must not be given the answer to this one.
            self._discard()
            raise

    def _given_up(self, zygote: Zygote, plan: Plan, why: str) -> RunRecord:
        """What happened in the ranks of a zygote that does not answer, which is ended here."""
        watching = zygote.watching
        found: dict[int, str] = {}
        if watching is not None:
            found = stacks.take(watching.run_dir, dict(enumerate(watching.pids)))
        zygote.kill()
        self._discard()
        if zygote.silent and zygote.collecting:
            self._endless[zygote.collecting] = why
        if watching is None or not watching.begun:
            return never_started(plan, why)
        return _lost(plan, zygote, why, "hung", found)


def _lost(plan: Plan, zygote: Zygote, text: str, kind: EndingKind, found: dict[int, str] | None = None) -> RunRecord:
    """The record of a test that had begun, and of which nobody can tell any more what it did."""
    now = clock.now()
    endings = [
        RankEnding(rank=rank, kind=kind, at=now, stack=(found or {}).get(rank, "")) for rank in range(plan.world_size)
    ]
    return RunRecord(plan=plan, endings=tuple(endings), seconds=now - zygote.asked_at, lost=text)


def _none_started(plan: Plan, text: str) -> RunRecord:
    """All for one reason: the first rank tells it whole; of a crash the others end with its name, not with a stack."""
    record = never_started(plan, text)
    said, fatal, dump = text.rpartition(stacks.FATAL)
    if not fatal:
        return record
    short = said + fatal + dump.partition("\n")[0]
    first, *others = record.endings
    return replace(record, endings=(first, *(replace(ending, text=short) for ending in others)))
