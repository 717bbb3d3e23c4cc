"""What torchrun runs, ``ddpcheck run`` runs: the same output, byte for byte, the same endings, and the same files.

Here it is one program that does much at once, in surroundings that are odd in every way; `nox -s differential` tells
of each of ninety programs and surroundings by itself.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.command.differing import ALONE, DDPCHECK, TORCHRUN, Ended, compared, differences, run
from tests.command.surroundings import AT_ONCE, COUNTING

REPORT = b"\nddpcheck \xe2\x94\x80\xe2\x94\x80\nHELD  train.py\n"
TRACEBACK = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    torch.save(1, "/proc/x")
RuntimeError: Parent directory /proc does not exist.
"""
THROUGH_A_PROBE = TRACEBACK.replace(
    b"RuntimeError", b'  File "/x/ddpcheck/probes/saving.py", line 3, in save\n    return original()\nRuntimeError'
)
PLAIN = Ended(0, b"out\0", b"", {b"file": (0o100600, b"x")}, [])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {"err": REPORT}),
        ({}, {"code": 3}),
        ({"err": TRACEBACK}, {"err": THROUGH_A_PROBE + REPORT}),
        ({"err": b"W1122 08:34:32 run.py] the launcher's\nown 0x7f 12\n"}, {"err": b"own 0x8a 13\n"}),
        ({"code": 1, "failed": [-9]}, {"code": 1, "failed": [-9, 1]}),
        # A fault that was found is an end of ddpcheck's own.
        ({}, {"code": 1, "document": {"verdict": "violated"}}),
    ],
)
def test_what_is_no_difference(theirs, ours):
    """The report, frames of probes, the launchers' own words, and what is another each time."""
    assert differences(replace(PLAIN, **theirs), replace(PLAIN, **ours)) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "word"),
    [
        ({}, {"out": b"out"}, "standard output"),
        ({}, {"err": b"a warning\n" + REPORT}, "standard error"),
        ({"err": TRACEBACK}, {"err": TRACEBACK.replace(b"line 3, in <m", b"line 4, in <f")}, "standard error"),
        ({}, {"code": 1}, "exit code"),
        ({"code": 1}, {}, "exit code"),
        ({}, {"code": 4}, "exit code"),
        ({"code": 1, "failed": [3]}, {"code": 1, "failed": [1]}, "exit codes of ranks"),
        ({}, {"files": {}}, "file b'file'"),
        ({}, {"files": {b"file": (0o100644, b"x")}}, "file b'file'"),
        ({}, {"files": {**PLAIN.files, b"\xe9": (0o100600, b"")}}, "file b'\\xe9'"),
    ],
)
def test_what_is_one(theirs, ours, word):
    """A byte, a mode, a file more or less, an exit code, a line of the program's own."""
    found = differences(replace(PLAIN, **theirs), replace(PLAIN, **ours))
    assert found
    assert found[0].startswith(word)


@pytest.mark.long
def test_a_program_that_minds_nothing_in_odd_surroundings(tmp_path) -> None:
    """In interpreters of its own, as a user would start it, and as torchrun would."""
    assert compared(AT_ONCE, tmp_path, ALONE) == []


@pytest.mark.long
@pytest.mark.parametrize("around", COUNTING, ids=lambda around: around.name)
def test_modes_and_classes_of_tensors_see_the_program_alone(tmp_path, around) -> None:
    """Their counts are those that they have under torchrun, and nobody refuses what a probe does."""
    theirs, ours = run(TORCHRUN, around, tmp_path), run(DDPCHECK, around, tmp_path)
    assert differences(theirs, ours) == []
    assert re.findall(rb"SPCALLS \d+", ours.err) == re.findall(rb"SPCALLS \d+", theirs.err)
    assert (theirs.code, ours.code) == (0, 0)
    assert theirs.out
