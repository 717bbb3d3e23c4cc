"""The zygote: one clean process per session, from which ranks come and which watches over them.

It has imported torch and collected test modules, and has done nothing else:
no autograd, no threads, no CUDA, no test. A rank forked from it is as isolated
as a new interpreter, and starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from ddpcheck.checks.registry import judge_of
from ddpcheck.gpus.gpu_inventory import look
from ddpcheck.gpus.leases import PATIENCE, PAUSE, Lease, folder
from ddpcheck.ranks import messages, private_folders
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.huge_pages import Folding
from ddpcheck.ranks.process_ties import Family, adopt_orphans, die_with_parent, kill_descendants, tied_to_parent
from ddpcheck.ranks.pytest_host import CannotCollect, Host
from ddpcheck.ranks.rank_record import StartedRank
from ddpcheck.ranks.rank_starting import CannotStart, fork_ranks, start_interpreters, why
from ddpcheck.ranks.supervisor import Interrupted, Supervision
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import Finding, Gpu, Plan, Question, never_started
from ddpcheck.zygote.imports import ForkSafety, import_torch
from ddpcheck.zygote.rank_life import be_rank, save_coverage


class NoLease(Exception):
    """The GPUs of a test could not be leased; says why."""


@contextlib.contextmanager
def _failing_as_no_lease() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoLease(why(error)) from error


class Zygote:
    """Serves the pytest process at the other end of ``control``."""

    def __init__(self, control: Channel, hello: messages.Hello, parent: int) -> None:
        self.control, self.hello, self.parent = control, hello, parent
        self.safety = ForkSafety()
        self.folding = Folding()
        self.cannot_fork = ""
        self.spoiled: messages.Spoiled | None = None

    def serve(self, host: Host) -> None:
        """Answer until told to stop; leave at once, with nothing left, when the pytest process is gone."""
        with tied_to_parent(self.parent):
            import_torch()
            machine = look()
            self.safety.has_gpus = bool(machine.gpus)
            self.cannot_fork = self.safety.lost()
        self.safety.settle()
        self.control.send(messages.Ready(cannot_fork=self.cannot_fork, machine=machine))
        try:
            while self._answer(host, self.control.receive()):
                pass
        except Closed:
            self._leave()
        assert host.session is not None
        self._finish(host.session)

    def _answer(self, host: Host, message: messages.AnyMessage) -> bool:
        match message:
            case messages.Collect(path=path):
                if not self.cannot_fork:
                    self._collect(host, path)
            case messages.Run(plan=plan):
                self._tell(self._run(host, plan))
                self.folding.go_on()  # while the pytest process reports
            case messages.Abort() | messages.Example() | messages.Given() | messages.Finish():
                pass  # nothing was running any more
            case messages.Stop():
                return False
            case _:
                raise AssertionError(f"the zygote was sent {message!r}")
        return True

    def _tell(self, message: messages.Message) -> None:
        try:
            self.control.send(message)
        except Closed:
            raise
        except Exception:
            self.control.send(messages.Broken(text=traceback.format_exc()))

    def _collect(self, host: Host, path: str) -> None:
        if host.has_collected(path) or self.spoiled is not None:
            return
        private_folders.note_collecting(self.hello.runtime_dir, path)
        with tied_to_parent(self.parent):
            host.collect(path)
            reason = self.safety.lost()
        if reason:
            self.spoiled = messages.Spoiled(path=path, reason=reason)
        self.safety.settle()

    def _run(self, host: Host, plan: Plan) -> messages.Message:
        """Run a test on the GPUs that it needs, if any; waiting for them is no part of its time."""
        try:
            with self._lease(plan) as gpus:
                return self._run_on(host, replace(plan, gpus=gpus))
        except Interrupted:
            return messages.Ran(record=never_started(plan, "the session was interrupted"))
        except NoLease as error:
            return messages.Ran(record=never_started(plan, f"its GPUs could not be leased: {error}"))

    @contextlib.contextmanager
    def _lease(self, plan: Plan) -> Iterator[tuple[Gpu, ...]]:
        """Hold GPUs for a test, once there are enough that nobody else holds; raises Interrupted, or NoLease."""
        if plan.simulated or not plan.gpus_wanted:
            yield plan.gpus
            return
        with _failing_as_no_lease():
            lease = Lease(plan.gpus, plan.gpus_wanted, folder(), plan.nodeid)
        begun, told = clock.now(), False
        poll = select.poll()  # whatever the descriptor's number
        poll.register(self.control.fileno(), select.POLLIN)

        def taken() -> bool:
            with _failing_as_no_lease():
                return lease.take()

        try:
            while not taken():
                if poll.poll(PAUSE * 1000):
                    self.control.receive_ready()
                    raise Interrupted  # nobody speaks to us now but to end it
                if not told and clock.now() > begun + PATIENCE:
                    told = True
                    self.control.send(messages.Waiting(text=lease.told()))
            yield lease.gpus
        finally:
            lease.release()

    def _run_on(self, host: Host, plan: Plan) -> messages.Message:
        try:
            if not (plan.fresh or self.cannot_fork):
                self._collect(host, plan.path)
        except Exception:
            return messages.Broken(text=traceback.format_exc())
        family = Family()  # only now: what the import of a file has started is no test's leftover
        run_dir, started = "", []
        try:
            try:
                run_dir = private_folders.within(self.hello.runtime_dir)
                started = self._start(host, plan, run_dir)
            except OSError as error:
                raise CannotStart(f"its ranks could not be started: {why(error)}") from error
            if self.spoiled is not None and not started:
                return self.spoiled
            return messages.Ran(record=Supervision(plan, started, self.control, run_dir, _judge, family).watch())
        except (CannotCollect, CannotStart) as error:
            return messages.Ran(record=never_started(plan, str(error)))
        except (Interrupted, Closed):
            raise
        except Exception:
            told = messages.Broken(text=traceback.format_exc())
            for one in started:
                one.discard()
            return told
        finally:
            family.end_strangers()
            shutil.rmtree(run_dir, ignore_errors=True)

    def _start(self, host: Host, plan: Plan, run_dir: str) -> list[StartedRank]:
        """Start the ranks of a test; none, where collecting it has made this process unfit to fork from."""
        if plan.fresh or self.cannot_fork:
            return start_interpreters(plan, self.hello, run_dir)
        if self.spoiled is not None:
            return []
        host.item(plan)  # for its error, said once instead of by every rank
        if plan.examples:
            import ddpcheck.examples.rank_side  # noqa: F401 - here, and not in every rank
        return fork_ranks(plan, self.control, self._enter(host, plan, run_dir))

    def _enter(self, host: Host, plan: Plan, run_dir: str):  # type: ignore[no-untyped-def]
        def enter(rank: int, channel: Channel, parent: int) -> NoReturn:
            be_rank(host, plan, rank, channel, run_dir, parent)

        return enter

    def _finish(self, session: pytest.Session) -> NoReturn:
        """Run the finishing hooks of the user's plugins, and be gone without pytest's last collections of garbage."""
        try:
            with tied_to_parent(self.parent):
                session.config.hook.pytest_sessionfinish(session=session, exitstatus=pytest.ExitCode.OK)
                session.config.hook.pytest_unconfigure(config=session.config)
        finally:
            kill_descendants()
            save_coverage()
            os._exit(0)

    def _leave(self) -> NoReturn:
        kill_descendants()
        os._exit(0)


def _judge(check: str, facts: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Judge an assertion by what each rank has said, and by the ranks' answers to questions, round by round."""
    found: tuple[Finding, ...] | Question = judge_of(check, "assertion")(facts, rounds)
    return found


def main(fd: int) -> None:
    """Be the zygote of the pytest process at the other end of the socket ``fd``."""
    parent = os.getppid()
    die_with_parent(parent)
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the pytest process that is interrupted
    control = Channel(socket.socket(fileno=fd))
    try:
        hello = control.receive()
    except Closed:
        sys.exit(0)
    assert isinstance(hello, messages.Hello)
    zygote = Zygote(control, hello, parent)
    Host(hello, zygote.serve).run()
    os._exit(1)  # the session did not even begin; pytest has written why
