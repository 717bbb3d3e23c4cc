"""The judge of saves in place, over evidence written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_atomic_save.run import EARLIER
from tests.judging.judged_files import ask, at, saved
from tests.judging.written import file, load, remove, rename, save, step
from tests.judging.written_state import Forms, plain

SINGLE, ATOMIC, READ = "checkpoint-single-writer", "checkpoint-atomic-save", "checkpoint-read-after-write"


def test_a_save_over_the_last_one():
    """Each save over the one before is at risk; the first is not."""
    saves = [save("/job/last.pt", 10, existed=there) for there in (False, True, True)]
    judged = ask(ATOMIC, saves, [])
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where, finding.count) == ("warning", (0,), at(10), 2)
    assert (judged.checked, judged.of) == (2, 3)


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
    judged = ask(ATOMIC, first, first)
    assert (judged.checked, judged.of, judged.findings, judged.skipped_because) == (0, 2, (), EARLIER)
    assert [f.ranks for f in ask(ATOMIC, first * 2, first).findings] == [(0,)]


# --- what is counted


@pytest.mark.parametrize(
    ("records", "counted"),
    [
        (saved(), (0, 1)),
        ([*saved(), step(12), *saved()], (1, 2)),
        ([save("/job/1.pt", 10), step(12), save("/job/2.pt", 10)], (1, 2)),
        # two files of one checkpoint
        ([save("/job/model.pt", 10), save("/job/optimizer.pt", 11)], (0, 2)),
        # the one before is taken away first, or put aside
        ([save("/job/1.pt", 10), step(12), remove("/job/1.pt", 13), save("/job/2.pt", 10)], (0, 2)),
        ([save("/job/1.pt", 10), step(12), rename("/job/1.pt", "/job/1.bak", 13), save("/job/1.pt", 10)], (1, 2)),
        # a folder that is renamed as a whole
        ([save("/job/new/1.pt", 10), rename("/job/new", "/job/last", 11), remove("/job/last/1.pt", 12)] * 2, (0, 2)),
        ([save("/job/new/1.pt", 10), rename("/job/new", "/job/1", 11), step(12), save("/job/new/1.pt", 10)], (1, 2)),
        # what a run before has left, and this one has loaded
        ([load("/job/last.pt", 9), *saved()], (1, 1)),
        ([load("/job/first.pt", 9), step(12), *saved()], (0, 1)),
    ],
)
def test_saves_that_have_a_checkpoint_to_leave_whole(records, counted):
    """One that is put in its place is one save, and only where an earlier checkpoint is there can it be lost."""
    judged = ask(ATOMIC, records, [])
    assert (judged.checked, judged.of, judged.findings) == (*counted, ())
    assert judged.skipped_because == ("" if judged.checked else EARLIER)


def test_ranks_that_put_their_files_in_one_place():
    """Nothing is known of the checkpoint before where several ranks write one path."""
    ranks = [[*saved(), step(12), *saved()]] * 2
    judged = ask(ATOMIC, *ranks)
    assert (judged.checked, judged.of, judged.findings) == (0, 4, ())


# --- folders of many files


def folders(*paths, between=()):
    """Saves of two ranks by torch.distributed.checkpoint, one after the other."""
    ranks = []
    for number in (0, 1):
        forms, records = Forms(), []
        for place, path in enumerate(paths):
            records += [(ev.SaveBegan, {"path": path})]
            records += forms.saved(10, path, plain("w", place), how="dcp.save", ranks=(0, 1), number=place)
            records += [rename(f"{path}/.metadata.tmp", f"{path}/.metadata", 11)] if number == 0 else []
            records += list(between) if number == 0 else [step(20)] * len(between)
        ranks.append(records)
    return ask(ATOMIC, *ranks)


def test_a_folder_that_is_saved_over():
    """Its metadata are the old ones until the end."""
    judged = folders(*["/job/last"] * 3)
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where, finding.count) == ("warning", (0, 1), at(10), 2)
    assert (judged.checked, judged.of) == (2, 3)


@pytest.mark.parametrize(
    ("paths", "between"),
    [
        (["/job/0", "/job/1", "/job/2"], []),
        (["/job/0", "/job/1", "/job/0"], []),  # the other one is whole
        (["/job/last"] * 2, [remove("/job/last", 11)]),
        (["/job/new"] * 2, [rename("/job/new", "/job/last", 11)]),
    ],
)
def test_folders_that_leave_one_whole(paths, between):
    assert folders(*paths, between=between).findings == ()


def test_folders_are_counted_once():
    """What all ranks save together is one save, and the rename of its metadata is none."""
    judged = folders("/job/0", "/job/1", between=[step(12)])
    assert (judged.checked, judged.of) == (1, 2)


def marked(unmark, name="complete"):
    """Two ranks put their files into one folder, twice; rank 0 says when all are there."""
    mark = f"/job/slot/{name}"
    first = [step(9), *saved("/job/slot/0.pt"), step(12), file("write", "open", mark, 13, existed=True)]
    second = [*saved("/job/slot/1.pt"), step(12), step(12), step(13)]
    return ask(ATOMIC, [*first[1:], *([remove(mark, 8)] if unmark else [step(8)]), *first[1:]], [*second, *second])


def test_an_old_mark_beside_new_files():
    (finding,) = marked(unmark=False).advisories
    assert (finding.severity, finding.subject) == ("advisory", "file slot/complete")


@pytest.mark.parametrize(("unmark", "name"), [(True, "complete"), (False, "scores.txt")])
def test_marks_that_say_nothing_wrong(unmark, name):
    assert marked(unmark, name).findings == ()
