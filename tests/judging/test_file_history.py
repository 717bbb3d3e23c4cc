"""What is known of the files of a run, and what its checks say where there are none."""

from __future__ import annotations

import pytest

from ddpcheck.judging.file_history import files_of, is_lock
from tests.judging.judged_files import ask, saved, verdict
from tests.judging.written import query, world

SINGLE, ATOMIC, READ = "checkpoint-single-writer", "checkpoint-atomic-save", "checkpoint-read-after-write"


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (SINGLE, "ddpcheck saw no file being written"),
        (ATOMIC, "ddpcheck saw no checkpoint being saved"),
        (READ, "ddpcheck saw no rank read or check for a file that another rank had written or removed"),
        ("checkpoint-map-location", "ddpcheck saw no load of tensors"),
        ("checkpoint-load-complete", "ddpcheck saw no load_state_dict of a module"),
    ],
)
def test_without_files_nothing_is_checked(check, reason):
    """A run that writes nothing says so, for each check."""
    judged = ask(check, [], [])
    assert (judged.checked, judged.skipped_because) == (0, reason)


@pytest.mark.parametrize(("path", "lock"), [("/a/x.lock", True), ("/a/.lockfile", True), ("/a/block.pt", False)])
def test_locks_by_their_name(path, lock):
    """What is a lock says so in its name."""
    assert is_lock(path) is lock


def test_a_question_leaves_the_files_as_they_are():
    """A mark that was only asked for has no writes, whichever check has looked at it before."""
    over = world(saved(), [query("/job/done", 20, answer=False)])
    for check in (READ, ATOMIC):
        verdict(check, over)
    assert all(files_of(over).writes.values())
