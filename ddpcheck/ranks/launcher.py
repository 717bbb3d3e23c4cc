"""The pytest process's end of the runtime: it starts the zygote, asks it for runs, and replaces it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ddpcheck.gpus import visible
from ddpcheck.model import Machine, Plan, RunRecord, never_started
from ddpcheck.ranks import stacks, wire
from ddpcheck.ranks.preload import single_threaded, without_cuda
from ddpcheck.ranks.processes import RUN_VARIABLE, sweep
from ddpcheck.ranks.starting import launch
from ddpcheck.wording import signal_name

STOP_PATIENCE = 3.0
"""Seconds that the zygote has for the session's own finishing hooks."""

ABORT_PATIENCE = 1.5
"""Seconds to end the ranks of an interrupted test; it cannot while it imports a module that does not return."""


class InternalError(Exception):
    """ddpcheck itself failed; never the user's program."""


class Launcher:
    """Runs tests in ranks; holds the one zygote of a session."""

    def __init__(
        self, options: dict[str, Any], args: list[str], workerinput: dict[str, Any], cwd: str, show_output: bool
    ) -> None:
        self._options, self._args, self._workerinput, self._cwd = options, args, workerinput, cwd
        self._show_output = show_output
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: wire.Channel | None = None
        self._runtime_dir = ""
        self._ready: wire.Ready | None = None
        self._fresh_paths: dict[str, str] = {}
        self._prepared: set[str] = set()
        """The files that this zygote was asked to collect in advance."""
        self.on_fresh: Callable[[str, str], None] = lambda path, reason: None
        """Called with a path and a reason when the ranks of its tests cannot be forked."""
        self.on_wait: Callable[[str], None] = lambda text: None
        """Called with a sentence when a test waits long for GPUs."""

    # --- the zygote's life

    def start(self) -> None:
        """Start the zygote, if it does not run; returns at once, while it still imports torch."""
        if self._process is not None:
            return
        self._runtime_dir = tempfile.mkdtemp(prefix="ddpcheck-")  # mode 0700
        ours, theirs = socket.socketpair()
        environment = without_cuda(single_threaded(visible.as_called(os.environ))) | {RUN_VARIABLE: self._runtime_dir}
        with theirs, self._log_file() as log:
            self._process = launch(
                "ddpcheck.ranks.zygote",
                theirs.fileno(),
                sys.path,
                environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the pytest process, which then tells
            )
        self._channel = wire.Channel(ours)
        self._channel.send(
            wire.Hello(
                options=self._options,
                args=self._args,
                sys_path=list(sys.path),
                cwd=self._cwd,
                workerinput=self._workerinput,
                runtime_dir=self._runtime_dir,
            )
        )

    def _log_file(self) -> Any:
        if self._show_output:
            return contextlib.nullcontext(None)
        return (Path(self._runtime_dir) / "zygote.log").open("wb")

    def stop(self) -> None:
        """End the zygote and everything below it."""
        if self._process is None or self._channel is None:
            return
        if self._ready is None:
            self._process.kill()  # it was started in advance, and nothing came of it
        try:
            with contextlib.suppress(wire.Closed):
                self._channel.send(wire.Stop())
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        except KeyboardInterrupt:  # not the first: it is to end now
            self._process.kill()
            raise
        finally:
            self._discard()

    def _discard(self) -> str:
        """Forget a zygote that has ended or must end; returns what it wrote last."""
        assert self._process is not None
        assert self._channel is not None
        self._channel.close()  # whatever it does, this ends it
        try:
            code = self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            sweep(self._runtime_dir)
        log = Path(self._runtime_dir) / "zygote.log"
        words = stacks.last_words(log.read_text(errors="replace")) if log.exists() else ""
        shutil.rmtree(self._runtime_dir, ignore_errors=True)
        self._process = self._channel = self._ready = None
        self._prepared.clear()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"left with exit code {code}"
        return f"the process that ranks come from {how}\n{words}".strip()

    # --- what it is asked

    def prepare(self, path: str) -> None:
        """Have a file collected in the background, so that its first test need not wait."""
        self.start()
        assert self._channel is not None
        if path not in self._fresh_paths:
            self._prepared.add(path)
            with contextlib.suppress(wire.Closed):
                self._channel.send(wire.Collect(path=path))

    def machine(self) -> Machine:
        """The GPUs that ranks would see, and the NCCL that they would use, asked of a process that has torch."""
        self.start()
        try:
            return self._await_ready().machine
        except wire.Closed:
            return Machine(trouble="the process that was to ask for them has ended")

    def run(self, plan: Plan) -> RunRecord:
        """Run one test in its ranks and return what happened; raises InternalError if ddpcheck failed."""
        record = self.begin(plan)
        if record is None:
            raise InternalError("the ranks of a test wait for examples that it does not have")
        return record

    def begin(self, plan: Plan) -> RunRecord | None:
        """Run a test until its end, or until all ranks of a property wait for examples, where there is nothing yet."""
        while True:
            self.start()
            try:
                self._await_ready(plan.path)
                fresh = plan.path in self._fresh_paths
                message = self._ask(wire.Run(plan=replace(plan, fresh=fresh)))
            except wire.Closed:
                others = self._prepared - {plan.path}
                text = self._discard()
                if plan.path in self._fresh_paths:
                    return _none_started(plan, text)
                if others:
                    continue  # one of them may have crashed it: the next zygote collects this file alone
                # Most likely importing the tests crashed it: with ranks of
                # their own it is seen which rank, and the others' tests go on.
                self._start_afresh(plan.path, text)
                continue
            match message:
                case wire.Ran(record=record):
                    return record
                case wire.AllFollowing():
                    return None
                case wire.Spoiled(path=path, reason=reason):
                    self._start_afresh(path, f"importing it, {reason}")
                    self.stop()
                case wire.Broken(text=text):
                    raise InternalError(text)
                case _:
                    raise InternalError(f"the zygote sent {message!r}")

    def tell(self, plan: Plan, message: wire.Message) -> wire.ExampleOver | wire.Asked | RunRecord:
        """Tell the ranks of a property, which are alive, and return what follows from it."""
        try:
            answer = self._ask(message)
        except wire.Closed:
            return _none_started(plan, self._discard())
        match answer:
            case wire.Ran(record=record):
                return record
            case wire.ExampleOver() | wire.Asked():
                return answer
            case wire.Broken(text=text):
                raise InternalError(text)
            case _:
                raise InternalError(f"the zygote sent {answer!r}")

    def abort(self) -> None:
        """End the ranks of a property at once."""
        with contextlib.suppress(wire.Closed):
            self._ask(wire.Abort())

    def _start_afresh(self, path: str, reason: str) -> None:
        self._fresh_paths[path] = reason
        self.on_fresh(path, reason)

    def _await_ready(self, path: str | None = None) -> wire.Ready:
        """Wait until the zygote has started; note whether it can fork at all, for this file's tests."""
        assert self._channel is not None
        if self._ready is None:
            message = self._channel.receive()
            assert isinstance(message, wire.Ready), message
            self._ready = message
        if path is not None and self._ready.cannot_fork and path not in self._fresh_paths:
            self._start_afresh(path, self._ready.cannot_fork)
        return self._ready

    def _ask(self, message: wire.Message) -> wire.AnyMessage:
        assert self._channel is not None
        self._channel.send(message)
        try:
            while isinstance(answer := self._channel.receive(), wire.Waiting):
                self.on_wait(answer.text)
            return answer
        except KeyboardInterrupt:
            # The ranks first: nothing of them may be left when pytest says that it was interrupted.
            assert self._process is not None
            try:
                self._channel.send(wire.Abort())
                self._channel.sock.settimeout(ABORT_PATIENCE)
                self._channel.receive()
                self._channel.sock.settimeout(None)
            except (TimeoutError, KeyboardInterrupt):
                self._process.kill()
            except wire.Closed:
                pass
            raise


def _none_started(plan: Plan, text: str) -> RunRecord:
    """All for one reason: the first rank tells it whole; of a crash the others end with its name, not with a stack."""
    record = never_started(plan, text)
    said, fatal, dump = text.rpartition(stacks.FATAL)
    if not fatal:
        return record
    short = said + fatal + dump.partition("\n")[0]
    first, *others = record.endings
    return replace(record, endings=(first, *(replace(ending, text=short) for ending in others)))
