"""The keeper: the process between pytest and the zygote, which nothing that a test starts outlives.

It does nothing but wait, so that whatever becomes of the zygote (killed,
stopped, crashed) or of pytest, somebody is left who ends the rest. On Linux it
adopts what loses its parent below it: a process that has left its session and
cleared its environment is found all the same.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
from typing import Any, NoReturn

from ddpcheck.ranks import messages
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.process_ties import adopt_orphans, kill_descendants, tell_of_parents_end


def main(control: int, lifeline: int, lock: int, folder: str) -> None:
    """Start the zygote that answers at ``control``, and watch over it for the pytest process behind ``lifeline``.

    ``folder`` is the session's own, and ``lock`` the descriptor that keeps it from being taken for abandoned.
    """
    parent = os.getppid()
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        os.setsid()  # a signal to the zygote's group is none to the keeper
        os.close(lifeline)
        os.close(lock)
        from ddpcheck.zygote import zygote  # here: with it comes much that a keeper has no use for

        zygote.main(control)
    os.close(control)
    Keeper(pid, parent, Channel(socket.socket(fileno=lifeline)), folder).watch()


class Keeper:
    """The watch over one zygote."""

    def __init__(self, zygote: int, parent: int, lifeline: Channel, folder: str) -> None:
        self.zygote, self.parent, self.lifeline, self.folder = zygote, parent, lifeline, folder
        self.status: int | None = None
        """How the zygote has ended, as wait() has it."""
        self._told_to_end = False
        self._bell, ringer = os.pipe()
        for end in (self._bell, ringer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: None)  # the bell rings, and that is all
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the pytest process that is interrupted
        tell_of_parents_end(signal.SIGUSR1)

    def _end(self, number: int, frame: Any) -> None:
        self._told_to_end = True

    def watch(self) -> NoReturn:
        """Wait for the end of the zygote or of the pytest process; then end all that is left, and leave as it did."""
        abandoned = False
        poll = select.poll()  # whatever the descriptors' numbers
        poll.register(self.lifeline.fileno(), select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        self._see_children()  # what happened before the bell was there
        while self.status is None and not self._told_to_end and not abandoned:
            ready = {number for number, _ in poll.poll()}
            if self._bell in ready:
                os.read(self._bell, 512)
                self._see_children()
            if self.lifeline.fileno() in ready:
                try:
                    self.lifeline.receive_ready()
                    self._told_to_end = True  # there is nothing else to say
                except Closed:
                    abandoned = True
            # Children that pytest has forked may hold the lifeline: its end alone would not tell.
            abandoned = abandoned or os.getppid() != self.parent
        self._end_all()
        if abandoned:
            from ddpcheck.ranks.private_folders import remove_abandoned  # here: a keeper seldom needs it

            shutil.rmtree(self.folder, ignore_errors=True)
            remove_abandoned()  # those of trainings
        self._leave()

    def _see_children(self) -> None:
        """Take note of what the zygote does, and bury whom it has left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                if pid == 0:
                    return
                if pid == self.zygote:
                    self._see_zygote(status)

    def _see_zygote(self, status: int) -> None:
        if os.WIFSTOPPED(status):
            self._say(messages.Halted(signal=os.WSTOPSIG(status)))
        elif os.WIFCONTINUED(status):
            self._say(messages.Halted(signal=None))
        else:
            self.status = status

    def _say(self, message: messages.Message) -> None:
        with contextlib.suppress(Closed):
            self.lifeline.send(message)

    def _end_all(self) -> None:
        if self.status is None:
            os.kill(self.zygote, signal.SIGKILL)
            _, self.status = os.waitpid(self.zygote, 0)
        kill_descendants()

    def _leave(self) -> NoReturn:
        """End in the way in which the zygote has ended: whoever waits for this process hears of that."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        if code < 0:
            _, most = resource.getrlimit(resource.RLIMIT_CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # the zygote has left its own
            with contextlib.suppress(OSError):  # SIGKILL needs no permission
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(max(code, 1) if code < 0 else code)
