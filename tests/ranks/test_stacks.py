"""A rank's stack, tidied: the frames of the test and of nothing below it."""

from __future__ import annotations

import faulthandler
import os

from ddpcheck.ranks import stacks

SITE = os.path.join(os.sep, "site-packages")
PACKAGE = os.path.join(os.sep, "site-packages", "ddpcheck")


def frame(file, line, function):
    return f'  File "{file}", line {line} in {function}'


BELOW = [
    frame(f"{SITE}/_pytest/python.py", 166, "pytest_pyfunc_call"),
    frame(f"{SITE}/pluggy/_callers.py", 121, "_multicall"),
    frame(f"{SITE}/pluggy/_hooks.py", 512, "__call__"),
    frame("/project/conftest.py", 9, "pytest_runtest_call"),
    frame(f"{SITE}/_pytest/runner.py", 179, "pytest_runtest_call"),
    frame(f"{PACKAGE}/ranks/host.py", 158, "_phase"),
    frame(f"{PACKAGE}/ranks/zygote.py", 141, "main"),
    frame("<string>", 1, "<module>"),
]


def tidy(*lines):
    return stacks.tidy("\n".join(lines) + "\n")


def test_what_lies_below_the_test_is_left_out():
    """The stack ends with the test; what called it is nobody's concern."""
    header = "Current thread 0x00007f0000000000 (most recent call first):"
    loop = frame("/project/train.py", 12, "loop")
    test = frame("/project/test_x.py", 5, "test_x")
    assert tidy(header, loop, test, *BELOW) == f"{header}\n{loop}\n{test}"


def test_frames_of_libraries_above_the_test_are_kept():
    """A stack that hangs in a library begins there."""
    inner = frame(f"{SITE}/torch/distributed/distributed_c10d.py", 4900, "barrier")
    test = frame("/project/test_x.py", 5, "test_x")
    assert tidy(inner, test, *BELOW) == f"{inner}\n{test}".strip()


def test_the_own_frames_of_an_assertion_are_left_out():
    """A rank that waits in an assertion is shown in the user's line that called it."""
    own = [frame(f"{PACKAGE}/ranks/wire.py", 250, "_read"), frame(f"{PACKAGE}/ranks/current.py", 92, "_judge")]
    test = frame("/project/test_x.py", 5, "test_x")
    assert tidy("Thread 1 (most recent call first):", *own, test, *BELOW) == (
        f"Thread 1 (most recent call first):\n{test}"
    )


def test_every_thread_is_shown():
    """A thread's frames are kept also where another thread's test came before it."""
    worker = [frame("/project/worker.py", 3, "run"), frame("/usr/lib/python3/threading.py", 1012, "_bootstrap")]
    test = frame("/project/test_x.py", 5, "test_x")
    text = tidy("Thread 2:", test, *BELOW, "", "Thread 1:", *worker)
    assert text == "\n".join(["Thread 2:", test, "", "Thread 1:", *worker])


def test_the_cause_of_a_crash_is_kept():
    """The line that tells of a crash stays, the list of extension modules goes."""
    test = frame("/project/test_x.py", 5, "test_x")
    text = tidy(
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x1 (most recent call first):",
        test,
        *BELOW,
        "",
        "Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)",
    )
    assert text == (f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n{test}")


def test_what_lies_below_a_fixture_is_left_out():
    """The stack of a fixture ends with the fixture, without the way in which the rank was started."""
    header = "Current thread 0x1 (most recent call first):"
    fixture = frame("/project/conftest.py", 5, "slow")
    below = [
        frame(f"{SITE}/_pytest/fixtures.py", 915, "call_fixture_func"),
        frame(f"{SITE}/pluggy/_callers.py", 121, "_multicall"),
        *BELOW[5:],
    ]
    assert tidy(header, fixture, *below) == f"{header}\n{fixture}"


def test_a_file_of_the_user_with_a_similar_name_is_kept():
    """Only the packages themselves are below a test: a user's folder may be named alike."""
    lines = [frame("/project/pluggy_tests/a.py", 1, "f"), frame("/project/ddpcheck_tests/b.py", 2, "g")]
    assert tidy("Thread 1:", *lines) == "\n".join(["Thread 1:", *lines])


def test_no_text_is_no_stack():
    """A rank that wrote nothing has an empty stack."""
    assert stacks.tidy("") == ""


def test_a_stack_of_this_interpreter_is_understood(tmp_path):
    """What faulthandler writes here and now is tidied to the frames of this test."""
    path = stacks.stack_file(str(tmp_path), 3)

    def inner():
        with path.open("w") as file:
            faulthandler.dump_traceback(file, all_threads=False)

    inner()
    header, *frames = stacks.read(str(tmp_path), 3).splitlines()
    assert header.endswith("(most recent call first):")
    assert [line.rpartition(" in ")[2] for line in frames] == [
        "inner",
        "test_a_stack_of_this_interpreter_is_understood",
    ]
    assert all(f'File "{__file__}"' in line for line in frames)


def test_a_rank_that_never_wrote_has_no_stack(tmp_path):
    """A rank without a file has an empty stack."""
    assert stacks.read(str(tmp_path), 0) == ""
