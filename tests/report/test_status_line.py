"""The line below everything on a terminal: it takes one row, gives it back, and is never in the way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import termios
import textwrap
import time

import pyte
import pytest

from ddpcheck.report import status_line
from ddpcheck.report.status_line import StatusLine, takes_more

ROWS, COLUMNS = 12, 60

HEAD = """
import os, sys, time
from ddpcheck.report.status_line import StatusLine

line = StatusLine(sys.stderr)
"""


def on_terminal(body, rows=ROWS, columns=COLUMNS, term="xterm-256color", group=True, until=b"", at_end=True):
    """The screen of a terminal on which a program has run, and how its margins were left."""
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)

    def controlling():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if not group:  # as one that runs in the background
            os.setpgid(0, 0) if os.getpid() != os.getpgrp() else None
            os.tcsetpgrp(0, _elsewhere())

    program = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        stdin=inner, stdout=inner, stderr=inner, preexec_fn=controlling, env={**os.environ, "TERM": term},
    )  # fmt: skip
    os.close(inner)
    seen = b""
    while True:
        try:
            data = os.read(outer, 1 << 16)
        except OSError:
            break
        if not data:
            break
        seen += data
        stream.feed(data)
        if until and until in seen:
            break
    if at_end:
        program.wait()
    else:
        program.kill()
        program.wait()
    os.close(outer)
    return screen


def _elsewhere():
    """A process group of this session that is not this one."""
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        time.sleep(5)
        os._exit(0)
    os.setpgid(pid, pid)
    return pid


def text(screen):
    return [row.rstrip() for row in screen.display]


def test_what_is_printed_scrolls_above_it():
    screen = on_terminal(
        """
        line.show("3 steps")
        for number in range(30):
            print("row", number, flush=True)
        line.show("30 steps")
        print("shown", flush=True)
        time.sleep(60)
        """,
        until=b"shown\r\n",
        at_end=False,
    )
    rows = text(screen)
    assert rows[-1] == "ddpcheck: 30 steps"
    assert rows[-3:-1] == ["shown", ""]
    assert "row 29" in rows
    assert not any("3 steps" in row for row in rows[:-1]), "none is left behind above"


def test_it_leaves_the_terminal_as_it_was():
    screen = on_terminal(
        """
        print("before", flush=True)
        line.show("working")
        print("between", flush=True)
        line.close()
        print("after", flush=True)
        line.show("closed is closed")
        """
    )
    assert [row for row in text(screen) if row] == ["before", "between", "after"]
    assert screen.margins is None or (screen.margins.top, screen.margins.bottom) == (0, ROWS - 1)


def test_a_child_gives_the_row_back_in_its_place():
    """The command was killed; the process that starts the ranks has outlived it."""
    screen = on_terminal(
        """
        line.show("working")
        if os.fork() == 0:
            os.close(0)
            line.give_back_for_parent()
            print("given back", flush=True)
            os._exit(0)
        os.wait()
        os.kill(os.getpid(), 9)
        """
    )
    assert not any("working" in row for row in text(screen))
    assert screen.margins is None or screen.margins.bottom == ROWS - 1


def test_a_long_text_is_cut_to_the_row():
    screen = on_terminal("line.show('x' * 500)\ntime.sleep(60)", until=b"\xe2\x80\xa6", at_end=False)
    assert text(screen)[-1] == "ddpcheck: " + "x" * (COLUMNS - 11) + "…"


@pytest.mark.parametrize(
    "where",
    [{"term": "dumb"}, {"rows": status_line.FEWEST - 1}, {"group": False}],
    ids=["no terminal to speak of", "few rows", "in the background"],
)
def test_where_it_would_be_in_the_way_it_is_not(where):
    screen = on_terminal("line.show('working')\nprint('printed', flush=True)", **where)
    assert [row for row in text(screen) if row] == ["printed"]


class Clock:
    """A time that passes as it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(status_line.time, "monotonic", lambda: self.now)


@pytest.fixture
def log(monkeypatch, tmp_path):
    """A log file with a status line on it, what is in the file, and the clock."""
    with (tmp_path / "log").open("w") as opened:
        clock = Clock(monkeypatch)
        yield StatusLine(opened), tmp_path / "log", clock


def test_in_a_log_there_is_a_line_each_minute(log):
    line, file, clock = log
    for clock.now in range(0, 200, 5):
        if line.due:
            line.show(f"after {clock.now} s")
    assert file.read_text() == "ddpcheck: after 60 s\nddpcheck: after 120 s\nddpcheck: after 180 s\n"


def test_it_can_be_switched_off(monkeypatch, tmp_path):
    with (tmp_path / "log").open("w") as opened:
        clock = Clock(monkeypatch)
        line = StatusLine(opened, "off")
        clock.now = 1e6
        assert not line.due


def test_what_nobody_reads_is_written_no_more(log):
    line, _, clock = log
    clock.now = 100.0
    line._fd = 1 << 20
    line.show("lost")
    clock.now = 1000.0
    assert not line.due


def test_a_stream_without_a_descriptor_is_none(monkeypatch):
    assert not StatusLine(object()).due


def test_it_waits_for_no_reader():
    """A pipe that is full, as a terminal that was stopped: nothing is written, and nobody waits."""
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "w") as stream:
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, bytes(1 << 16))
        os.set_blocking(write, True)
        line = StatusLine(stream, "log")
        line.show("not waited for")
        while len(reader.read(1 << 16)) == 1 << 16 and not takes_more(write):
            pass
        line.show("said")
        assert reader.read(1 << 20).lstrip(bytes(1)) == b"ddpcheck: said\n"
