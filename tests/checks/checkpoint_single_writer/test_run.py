"""The judge of who writes a file, over evidence written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.world import World
from tests.judging.judged_files import BARRIER, ask, at, saved, verdict
from tests.judging.written import (
    call,
    file,
    load,
    raised,
    rank,
    rename,
    save,
    step,
)

SINGLE, ATOMIC, READ = "checkpoint-single-writer", "checkpoint-atomic-save", "checkpoint-read-after-write"


def test_one_writer_holds():
    """Rank 0 saves, and the others do not."""
    judged = ask(SINGLE, saved(), [])
    assert (judged.checked, judged.findings) == (2, ())


def test_every_rank_saves():
    """One finding for all that the function writes, at the first line, on all its ranks."""
    (finding,) = ask(SINGLE, *[[*saved(), file("write", "open", "/job/config.json", 14)]] * 2).findings
    assert (finding.severity, finding.ranks, finding.where, finding.count) == ("error", (0, 1), at(10), 3)
    assert finding.subject == "file last.pt"
    assert finding.found == "ranks 0 and 1 writing last.pt (and 2 more files), by torch.save"
    assert finding.cause == "every rank comes to this line"
    assert "file /job/last.pt" in finding.links


def test_the_guard_asks_for_the_local_rank():
    """Writers that all have one local rank, while others have not, are told of their guard."""
    ranks = [rank(r, saved() if r % 2 == 0 else [], 4, local_rank=r % 2) for r in range(4)]
    (finding,) = verdict(SINGLE, World(ranks, 4)).findings
    assert finding.ranks == (0, 2)
    assert finding.cause == "these ranks all have LOCAL_RANK 0: there is one such rank on every node"


def test_every_rank_is_the_only_one_of_its_node():
    """All have LOCAL_RANK 0, and all write: nothing shows that a guard has asked for it."""
    ranks = [rank(r, saved(), 2, local_rank=0) for r in range(2)]
    (finding,) = verdict(SINGLE, World(ranks, 2)).findings
    assert finding.cause == "every rank comes to this line"


def settings(held, *more):
    """A small file that a rank has opened to write it anew, and what it then held."""
    return [
        file("write", "open", "/job/settings.json", 10),
        file("content", "", "/job/settings.json", 0, identity=held),
        *more,
    ]


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    (settings("a"), settings("a"), "warning"),
    (settings("a")[:1], settings("a")[:1], "warning"),  # emptied, or too large to be looked at
    (settings("a"), settings("b"), "error"),
    (settings("a", file("append", "open", "/job/settings.json", 12)), settings("b"), "warning"),  # by then it had grown
    (settings("a", *settings("b")), settings("b"), "warning"),  # written twice: another time, maybe
])  # fmt: skip
def test_a_small_file_that_all_ranks_write(ours, theirs, expected):
    """Settings and logs that are begun anew are harmless, as long as the ranks put the same there."""
    (finding,) = ask(SINGLE, ours, theirs).findings
    assert (finding.severity, finding.ranks) == (expected, (0, 1))
    assert finding.found.endswith("right by luck") is (expected == "warning")


def turns(rank, epochs=4, between=True):
    """A rank that saves in every other epoch, in turn with another one; the barriers have places of their own."""
    records = []
    for epoch in range(epochs):
        if between or not epoch:
            records.append(call(epoch + 1, 12))
        if epoch % 2 == rank:
            records += saved()
    return records


def test_ranks_that_take_turns():
    """One rank writes at any time, where all meet between one rank's save and the other's."""
    judged = ask(SINGLE, turns(0), turns(1))
    assert (judged.checked, judged.findings) == (2, ())
    (finding,) = ask(SINGLE, turns(0, between=False), turns(1, between=False)).findings
    assert (finding.severity, finding.ranks) == ("error", (0, 1))
    # A barrier before the saves of all ranks keeps none of them apart.
    assert len(ask(SINGLE, [*BARRIER, *saved()], [*BARRIER, *saved()]).findings) == 1
    # A thread goes on writing behind the barrier.
    late = [save("/job/last.pt", 10, thread="saver"), *BARRIER]
    assert len(ask(SINGLE, late, [*BARRIER, *saved()]).findings) == 1


def test_every_rank_renames_one_folder():
    """Two ranks that put the same staging folder in its place: the second fails, and that is linked."""
    moves = [rename("/job/staging", "/job/done", 20)]
    fails = [*moves, raised("[Errno 2] No such file: '/job/staging' -> '/job/done'", 20)]
    (finding,) = ask(SINGLE, moves, fails).findings
    assert (finding.where, finding.links) == (at(20), ("file /job/done", "stop"))


@pytest.mark.parametrize(
    "records",
    [
        [file("write", "open x", "/job/claim", 5)],
        [file("write", "os.open", "/job/marker", 5)],
        [file("write", "open", "/job/cache.lock", 5)],
        [file("write", "open", "/job/cache.npy", 5, locks=[7])],
    ],
)
def test_what_ranks_are_meant_to_share(records):
    """Claims, markers, locks, and what is written under a lock."""
    assert ask(SINGLE, records, records).findings == ()


@pytest.mark.parametrize(("ours", "theirs"), [([7], [8]), ([7], []), ([], [])])
def test_a_lock_of_something_else(ours, theirs):
    """It keeps no rank's write from the other's."""
    ranks = [[file("write", "open", "/job/cache.npy", 5, locks=locks)] for locks in (ours, theirs)]
    assert len(ask(SINGLE, *ranks).findings) == 1


def test_files_of_their_own():
    """A file for each rank, and a temporary name for each rank that one of them renames."""
    ranks = [[save(f"/job/last.{r}.tmp", 10), file("write", "open", f"/job/log.{r}", 12)] for r in range(2)]
    ranks[0].append(rename("/job/last.0.tmp", "/job/last.pt", 11))
    assert ask(SINGLE, *ranks).findings == ()


def test_the_cache_of_a_library_is_at_risk_only():
    """A library that gives each rank's copy its place at once is a warning."""
    ranks = [[rename(f"/job/part.{r}", "/job/model.pt", 10, library=True)] for r in range(2)]
    (finding,) = ask(SINGLE, *ranks).findings
    assert finding.severity == "warning"


def test_two_hosts():
    """On several hosts /tmp is each host's own; elsewhere it is not known whether the folder is shared."""
    for path, severities in (("/tmp/last.pt", []), ("/data/last.pt", ["warning"])):
        ranks = [rank(r, [save(path, 5, identity=f"1:{r}")], host=f"h{r}") for r in range(2)]
        assert [f.severity for f in verdict(SINGLE, World(ranks, 2)).findings] == severities
    ranks = [rank(r, [save("/data/last.pt", 5, identity=f"{r}:77")], host=f"h{r}") for r in range(2)]
    assert [f.severity for f in verdict(SINGLE, World(ranks, 2)).findings] == ["error"]


# --- where the condition belongs


def line(number, text, caller=0):
    """A line of the script, and which one has called its function."""
    fields = {"id": number, "file": "train.py", "line": number - 100, "function": "f", "text": text}
    return ev.Site, {**fields, "caller": caller}


WAY = [line(101, "main()"), line(102, "data = cached(path)", 101), line(103, "prepare(path)", 102),
       line(104, "torch.save(rows, path)", 103), line(105, "dist.barrier()", 102)]  # fmt: skip


def guarded(*between):
    """What every rank is told that writes a file in line 4, has something between, and reads it."""
    own = [*WAY, save("/job/data.pt", 104), *between, load("/job/data.pt", 102)]
    (finding,) = ask(SINGLE, own, own).findings
    return finding.advice


def test_the_condition_belongs_around_the_outermost_call_that_only_writes():
    """In the call above it the ranks meet, and what that gives back is used."""
    assert guarded(call(1, 105)) == (
        "Write on one rank only: if dist.get_rank() == 0. The condition belongs around line 3 of train.py, "
        "`prepare(path)`. The others wait for it at train.py:5, as they do now."
    )


def test_where_ranks_meet_within_a_call_it_is_not_left_out():
    """A rank that does not go there would leave the others waiting."""
    assert "around line 4 of train.py, `torch.save(rows, path)`" in guarded(call(1, 103))


def test_without_a_meeting_a_barrier_is_to_follow():
    """The other ranks would read before it is there."""
    assert guarded().endswith(" Then call dist.barrier(), before the others read it.")


def test_a_file_that_nobody_reads_needs_none():
    """Only the condition is missing."""
    own = [*WAY, save("/job/data.pt", 104)]
    (finding,) = ask(SINGLE, own, own).findings
    assert "barrier" not in finding.advice


# --- which line it is


def test_a_guarded_line_is_not_to_blame():
    """Rank 0 saves on its own in each epoch, and at the end every rank does, at another line."""
    epochs = [save("/job/last.pt", 10), call(1, 12), save("/job/last.pt", 10)]
    own = [epochs[0], epochs[1], epochs[2], save("/job/last.pt", 20)]
    (finding,) = ask(SINGLE, own, [call(1, 12), save("/job/last.pt", 20)]).findings
    assert (finding.where, finding.ranks, finding.count) == (at(20), (0, 1), 1)
    assert finding.cause == "every rank comes to this line"
    assert finding.proof == ()


def test_one_line_that_is_reached_in_two_ways():
    """A function saves: rank 0 alone calls it at one line, and all ranks at another."""
    ways = [line(101, "main()"), line(102, "keep(net)", 101), line(103, "keep(net)", 101)]
    first, last = line(104, "torch.save(net, path)", 102), line(105, "torch.save(net, path)", 103)
    last[1]["line"] = first[1]["line"]
    own = [*ways, first, last, save("/job/last.pt", 104), save("/job/last.pt", 105)]
    own.append(step(101))
    (finding,) = ask(SINGLE, own, [*ways, last, save("/job/last.pt", 105)]).findings
    assert [one.line for one in finding.where.chain] == [1, 3, 4]
    assert "around line 3 of train.py" in finding.advice


def test_each_rank_has_a_line_of_its_own():
    """No line is to be put under a condition: the lines are named."""
    (finding,) = ask(SINGLE, [save("/job/last.pt", 10)], [save("/job/last.pt", 20)]).findings
    assert (finding.where, finding.proof) == (at(10), ((1, at(20)),))
    assert finding.cause == "each of these ranks writes it at a line of its own"
    assert "get_rank() == 0" not in finding.advice


# --- files of libraries


def dumped(path="/job/.lib/settings.yaml", held="", by=101, library=True):
    """A file that a library opens within a line of the user's."""
    written = [file("write", "open", path, by, library=library)]
    return [*written, file("content", "", path, 0, identity=held)] if held else written


TRAINS = [line(101, "main()"), line(102, "optimizer.step()", 101), line(103, "lib.begin()", 101)]


def test_what_a_library_keeps_for_itself():
    """It writes within the call in which the ranks train: nothing is asked of the user, and nothing is compared."""
    ranks = [[*TRAINS, *dumped(), step(102)]] * 2
    judged = ask(SINGLE, *ranks)
    assert (judged.findings, judged.checked) == ((), 0)
    assert judged.skipped_because == "ddpcheck saw no file being written, but by libraries for themselves"
    # Where the ranks do not train within that line, it can be put under a condition.
    (finding,) = ask(SINGLE, *[[*TRAINS, *dumped(by=103), step(102)]] * 2).findings
    assert (finding.severity, finding.where.line) == ("warning", 3)
    assert finding.advice.startswith("Call it on one rank only")
    # What the user's own line opens is the user's affair.
    assert ask(SINGLE, *[[*TRAINS, *dumped(library=False), step(102)]] * 2).findings


def test_a_library_whose_ranks_write_different_bytes():
    """It is at risk, and nothing can be put under a condition."""
    (finding,) = ask(SINGLE, *[[*TRAINS, *dumped(held=held), step(102)] for held in "ab"]).findings
    assert finding.severity == "warning"
    assert finding.advice.startswith("By the settings of the library")
    assert finding.found.endswith("they put different bytes there")


def test_a_library_that_writes_state():
    """What is loaded as state is a checkpoint, whoever writes it."""
    own = [*TRAINS, *dumped(), step(102), load("/job/.lib/settings.yaml", 102)]
    (finding,) = ask(SINGLE, own, own).findings
    assert finding.severity == "error"


def test_what_a_checkpoint_is():
    """Not a file of some name: one that a call which saves or loads state was seen to go to."""
    for path in ("/job/settings.pkl", "/job/settings.ckpt"):
        own = [file("write", "open", path, 5)]
        assert [f.severity for f in ask(SINGLE, own, own).findings] == ["warning"]
        assert [f.severity for f in ask(SINGLE, own, [*own, load(path, 9)]).findings] == ["error"]
