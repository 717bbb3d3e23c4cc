"""The pytest process's hold on a zygote: what it says, whether it still can, and how it ended.

The zygote watches over ranks, and nobody but this process over the zygote: one
that was stopped, or that does not answer, is given up by this process's own
clock, and its keeper ends it with everything below it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from ddpcheck.gpus import visible_devices
from ddpcheck.ranks import messages, private_folders, stacks
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.process_ties import RUN_VARIABLE, sweep
from ddpcheck.ranks.rank_starting import launch
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.wording import signal_name
from ddpcheck.zygote.imports import single_threaded, without_cuda

STOP_PATIENCE = 3.0
"""Seconds that the zygote has for the session's own finishing hooks, and its keeper to end what is left."""

LATE = 60.0
"""Seconds after the deadline of a test at which a zygote that has not told its end is given up: it takes stacks,
and waits for tracebacks, which on a busy machine takes its time."""


SILENCE = 300.0
"""Seconds that a zygote has, besides a test's own, to start or to import one file: that may take long, but it ends."""


class Unanswered(Exception):
    """The zygote does not answer, and will not; says why, as a clause."""


class Zygote:
    """A zygote with its keeper, in a folder of their own; raises OSError where it cannot be started."""

    def __init__(self, hello: messages.Hello, show_output: bool) -> None:
        self.ready: messages.Ready | None = None
        self.watching: messages.Watching | None = None
        """The ranks of the test that was last asked for, once they are there."""
        self.prepared: set[str] = set()
        """The files that it was asked to collect in advance."""
        self.asked = False
        """It was told something, and has not answered since."""
        self._stopped_by: int | None = None
        self._stopped_at = self.asked_at = self._sign_at = 0.0
        self.collecting = ""
        """The file that it was last seen to import."""
        self._leasing = False
        """It waits for GPUs, which has no end of its own."""
        with contextlib.ExitStack() as undo:
            self._folder = private_folders.Folder()
            undo.callback(self._folder.remove)
            self._control, theirs = _connection(undo)
            self._lifeline, keepers = _connection(undo)
            self._selector = undo.enter_context(selectors.PollSelector())
            self._selector.register(self._control, selectors.EVENT_READ)
            self._selector.register(self._lifeline, selectors.EVENT_READ)
            log = None if show_output else undo.enter_context(self._log().open("wb"))
            path = self._folder.path
            self._process = launch(
                "ddpcheck.zygote.keeper",
                [theirs.fileno(), keepers.fileno(), self._folder.lock],
                sys.path,
                without_cuda(single_threaded(visible_devices.as_called(os.environ))) | {RUN_VARIABLE: path},
                path,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the pytest process, which then tells
            )
            undo.pop_all()
        theirs.close()
        keepers.close()
        if log is not None:
            log.close()
        with contextlib.suppress(Closed):  # it has ended already, and is asked how when there is something to ask for
            self.send(replace(hello, runtime_dir=path))

    def _log(self) -> Path:
        return Path(self._folder.path) / "zygote.log"

    # --- messages to and from it

    def send(self, message: messages.Message) -> None:
        """Send one message; raises Closed where the zygote has ended."""
        self.watching, self.asked, self.asked_at, self._leasing = None, True, clock.now(), False
        self._look()
        self._control.send(message)

    def receive(self, patience: float) -> messages.AnyMessage:
        """Wait for what the zygote says next; raises Closed at its end, and Unanswered where it is given up.

        ``patience``: seconds that it may be stopped where no test's deadline is known.
        """
        while True:
            message = self._control.next()
            if isinstance(message, messages.Watching):
                self.watching = message
            elif message is not None:
                self.asked = self._leasing = isinstance(message, messages.Waiting)
                return message
            elif not self._hear(self._given_up_at(patience) - clock.now()) and not self._look():
                raise Unanswered(self._why())

    def _hear(self, seconds: float) -> bool:
        """Wait so long for the zygote, or for what its keeper says of it; whether there was something."""
        heard = self._selector.select(min(max(seconds, 0.0), 1e6))
        for key, _ in heard:
            if key.fileobj is self._control:
                self._control.read()
            else:
                self._note(self._lifeline.receive_ready())
        return bool(heard)

    def _note(self, arrived: list[messages.AnyMessage]) -> None:
        for message in arrived:
            assert isinstance(message, messages.Halted), message
            self._stopped_by, self._stopped_at = message.signal, clock.now()

    def _given_up_at(self, patience: float) -> float:
        stopped = self._stopped_by is not None
        if self.watching is not None:
            return self.watching.until + (0.0 if stopped else LATE)
        if stopped:
            return max(self._stopped_at, self.asked_at) + patience
        return float("inf") if self._leasing else max(self.asked_at, self._sign_at) + SILENCE + patience

    @property
    def silent(self) -> bool:
        """It has said nothing since it was asked, though nobody has stopped it."""
        return self.watching is None and self._stopped_by is None

    def _look(self) -> bool:
        """Whether it imports another file than when this was last looked for, and so goes on."""
        if not self.silent:
            return False
        before, self.collecting = self.collecting, private_folders.collecting(self._folder.path)
        if self.collecting == before:
            return False
        self._sign_at = clock.now()
        return True

    def _why(self) -> str:
        if self._stopped_by is not None:
            return f"the process that ranks come from was stopped by {signal_name(self._stopped_by)}"
        if self.watching is None:
            doing = f"importing {self.collecting}" if self.collecting else "starting"
            return f"the process that ranks come from did not come to an end of {doing} within {SILENCE:.0f} s and more"
        return f"the process that ranks come from did not answer within {LATE:.0f} s of the deadline"

    def abort(self, patience: float) -> None:
        """End the ranks that run now; and the zygote, if it does not answer in time."""
        try:
            self._control.send(messages.Abort())
            end = clock.now() + patience
            while self._control.next() is None:
                if not self._hear(end - clock.now()):
                    return self.kill()
        except KeyboardInterrupt:
            self.kill()
        except Closed:
            pass

    # --- its end

    def finish(self) -> None:
        """Let it run the session's finishing hooks, and end."""
        if self.ready is None:
            return self.kill()  # it was started in advance, and nothing came of it
        try:
            with contextlib.suppress(Closed):
                self.send(messages.Stop())
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        except KeyboardInterrupt:  # not the first: it is to end now
            self.kill()
            raise

    def kill(self) -> None:
        """Have its keeper end it now, with everything below it."""
        with contextlib.suppress(Closed):
            self._lifeline.send(messages.Stop())

    def discard(self) -> str:
        """Forget a zygote that has ended or must end; returns how it ended, and what it wrote last."""
        self._control.hang_up()  # whatever it does, this ends it
        try:
            code = self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._end_keeper()
        if code != 0:
            # The keeper may have been killed itself: then the zygote ends what is below it, and this the rest.
            self._await_silence()
            sweep(self._folder.path)
        words = ""
        with contextlib.suppress(OSError):
            words = stacks.last_words(self._log().read_text(errors="replace"))
        self._selector.close()
        self._control.close()
        self._lifeline.close()
        self._folder.remove()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"left with exit code {code}"
        return f"the process that ranks come from {how}\n{words}".strip()

    def _await_silence(self) -> None:
        end = clock.now() + STOP_PATIENCE
        with contextlib.suppress(Closed):
            self._selector.unregister(self._lifeline)
            while self._hear(end - clock.now()):
                pass

    def _end_keeper(self) -> int:
        try:
            return self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _connection(undo: contextlib.ExitStack) -> tuple[Channel, socket.socket]:
    """This process's end of a new connection, and the end to give away."""
    ours, theirs = socket.socketpair()
    undo.callback(theirs.close)
    channel = Channel(ours).moved_out_of_reach()
    undo.callback(channel.close)
    return channel, theirs
