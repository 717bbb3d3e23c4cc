"""The judge of saves in place, over evidence written by hand."""

from __future__ import annotations

import pytest

from tests.judging.judged_files import ask, at, saved
from tests.judging.written import (
    file,
    rename,
    save,
)

SINGLE, ATOMIC, READ = "checkpoint-single-writer", "checkpoint-atomic-save", "checkpoint-read-after-write"


def test_a_save_over_the_last_one():
    """Each save over the one before is at risk; the first is not."""
    saves = [save("/job/last.pt", 10, existed=there) for there in (False, True, True)]
    judged = ask(ATOMIC, saves, [])
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where, finding.count) == ("warning", (0,), at(10), 2)
    assert judged.checked == 3


@pytest.mark.parametrize(
    "records",
    [
        saved() * 3,
        [save(f"/job/epoch-{e}.pt", 10) for e in range(3)],
        # a temporary name that a run before has left
        [save("/job/last.tmp", 10, existed=True), rename("/job/last.tmp", "/job/last.pt", 11)],
        # a name of its own, made empty
        [file("write", "os.open", "/job/tmpx", 9), save("/job/tmpx", 10, existed=True)],
        # the one before was copied first
        [
            save("/job/last.pt", 10),
            file("read", "open", "/job/last.pt", 9, existed=True),
            file("write", "open", "/job/last.bak", 9),
            save("/job/last.pt", 10, existed=True),
        ],
        # no checkpoint
        [save("/job/scores.pt", 10, keys=[], existed=True)],
        [file("write", "open", "/job/metrics.json", 10, existed=True)],
    ],
)
def test_saves_that_leave_the_last_one_whole(records):
    """Renames, fresh names, temporary names, copies, and what is no checkpoint."""
    assert ask(ATOMIC, records, []).findings == ()


def test_a_file_that_is_opened_to_be_saved_into_is_one_save():
    """The open emptied it, and the save is on record with what was there before."""
    opened = file("write", "open", "/job/last.pt", 9, existed=True)
    (finding,) = ask(ATOMIC, [opened, save("/job/last.pt", 10, existed=True)], []).findings
    assert (finding.where, finding.count) == (at(10), 1)


def test_what_another_rank_has_written_is_no_checkpoint_of_ones_own():
    """A file with two writers is told of as such, and as saved in place where a rank goes over its own save."""
    first = [save("/job/last.pt", 10, existed=True)]
    assert ask(ATOMIC, first, first).findings == ()
    assert [f.ranks for f in ask(ATOMIC, first * 2, first).findings] == [(0,)]
