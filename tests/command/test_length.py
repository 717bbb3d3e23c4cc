"""How long a report is, and what its end says: on a terminal of 80 columns, with all that the ranks print."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
from pathlib import Path

import pyte
import pytest

from tests import progress
from tests.command.running import COMMAND

PROGRAM = Path(__file__).parents[2] / "fixtures" / "reports" / "six_findings.py"
COLUMNS, WIDE = 80, 1000
RULES = [
    "epoch-reshuffle/same-order-each-epoch",
    "process-hygiene/undestroyed-process-group",
    "optimizer-sync/repeated-scheduler-steps",
    "checkpoint-atomic-save/in-place-save",
    "checkpoint-map-location/no-map-location",
    "rng-independence/same-draws-on-ranks",
]


def lines_of(*arguments):
    """All lines that a command has left on a terminal of 80 columns, those that have scrolled away too.

    The screen that is read is wider: a line that the terminal wraps by itself is one.
    """
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    screen = pyte.HistoryScreen(WIDE, 40, history=2000, ratio=1)
    stream = pyte.ByteStream(screen)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def controlling():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    run = subprocess.Popen(
        arguments, cwd=PROGRAM.parent, stdin=inner, stdout=inner, stderr=inner, preexec_fn=controlling,
        env={**environment, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(inner)
    hope = progress.Progress(lambda: progress.processor_time(run.pid))
    seen = 0
    while True:
        hope.look(seen)
        if not select.select([outer], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(outer, 1 << 16)
        except OSError:  # so a terminal ends that nobody writes to any more
            break
        seen += len(data)
        stream.feed(data)
    os.close(outer)
    assert run.wait() == 1
    left = ["".join(row[x].data for x in range(WIDE)).rstrip() for row in screen.history.top]
    return [*left, *("\n".join(line.rstrip() for line in screen.display)).rstrip().split("\n")]


@pytest.mark.parametrize("crash", [False, True])
def test_one_error_and_five_warnings(tmp_path, crash):
    """Each is there in full once, and once in a line at the end; torchrun's last words are not."""
    shown = lines_of(
        *COMMAND, "--standalone", "--nproc-per-node", "2", PROGRAM.name, str(tmp_path), *["--crash"] * crash
    )
    rules = ["rank-failure/failed-rank", *RULES[2:]] if crash else RULES
    report = shown.index(next(row for row in shown if row.startswith("ddpcheck ──")))
    assert len(shown) < (170 if crash else 120), "two tracebacks and torchrun's last words are 50 of them"
    assert [re.split("  +", row)[1] for row in shown[report:] if re.match(r"\d\. ", row)] == rules
    assert sum(row.lstrip().startswith("fix ") for row in shown) == len(rules)
    verdict = "FAILED" if crash else "VIOLATED"
    assert shown[-1] == f"{verdict}  1 error and {len(rules) - 1} warnings, exit code 1"
    severities = ["error", *["warning"] * (len(rules) - 1)]
    for row, rule, expected in zip(shown[-1 - len(rules) : -1], rules, severities, strict=True):
        place, severity, name = row.split("  ")[:3]
        assert re.fullmatch(r"six_findings\.py:\d+", place)
        assert severity == expected
        assert name == rule
    if crash:
        assert report < shown.index("six_findings.py FAILED") < len(shown) - 8
