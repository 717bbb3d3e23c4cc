"""What is told of a process that ranks come from, once it has ended."""

from __future__ import annotations

from ddpcheck.ranks.stacks import MOST_WRITTEN, last_words

OTHERS = "".join(
    f"Thread 0x{n:04x} (most recent call first):\n" + '  File "/lib/threading.py", line 9 in wait\n' * 90 + "\n"
    for n in range(9)
)
OWN = """\
Current thread 0x00a0 (most recent call first):
  File "/lib/torch/__init__.py", line 7 in load
"""
MODULES = f"\nExtension modules: {', '.join(f'module{n}' for n in range(900))} (total: 900)\n"


def test_the_last_crash_and_what_was_said_before_it():
    """However long the stacks and the list of modules are; an earlier crash, and words long before, are left out."""
    earlier = "Fatal Python error: Bus error\n\n" + OTHERS + OWN + MODULES
    said = "noise\n" * 20 + "terminate called\n  what():  no such symbol\n"
    told = last_words(earlier + said + "Fatal Python error: Aborted\n\n" + OTHERS + OWN + MODULES)
    lines = told.splitlines()
    assert lines[-5:] == [
        "  what():  no such symbol", "Fatal Python error: Aborted", "", *OWN.splitlines()
    ]  # fmt: skip
    assert lines[:-5] == ["noise"] * 8 + ["terminate called"]


def test_a_long_stack_keeps_both_its_ends():
    """The innermost calls, and what was written after the crash."""
    calls = OWN + '  File "/lib/tree.py", line 3 in descend\n' * 400
    told = last_words("Fatal Python error: Aborted\n\n" + calls + MODULES + "its last line\n")
    assert told.startswith("Fatal Python error: Aborted\n\n" + OWN)
    assert told.endswith("\nits last line")
    assert len(told) < MOST_WRITTEN + 10


def test_no_crash():
    """Then it is the end of what was written."""
    assert last_words("error\n") == "error\n"
    assert last_words("x" * MOST_WRITTEN + "end") == "x" * (MOST_WRITTEN - 3) + "end"
