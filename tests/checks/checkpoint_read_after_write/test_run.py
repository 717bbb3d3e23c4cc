"""The judge of who reads a file when, over evidence written by hand: races, waits, and looks that are agreed on."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.wording import plural
from tests.judging.judged import run_findings
from tests.judging.judged_files import BARRIER, FILES, ask, at, saved, verdict
from tests.judging.written import (
    call,
    file,
    load,
    loaded,
    query,
    raised,
    rank,
    remove,
    rename,
    save,
    step,
    waited,
    world,
    wrapped,
)
from tests.judging.written_state import Forms, plain

READ = "checkpoint-read-after-write"


def test_a_barrier_keeps_save_and_load_apart():
    """All ranks meet between the two."""
    judged = ask(READ, [*saved(), *BARRIER, load("/job/last.pt", 15)], [*BARRIER, load("/job/last.pt", 15)])
    assert (judged.checked, judged.findings) == (1, ())


def test_no_barrier():
    """Whoever is faster: found in a run where nothing went wrong."""
    judged = ask(READ, [*saved(), load("/job/last.pt", 15), *BARRIER], [load("/job/last.pt", 15), *BARRIER])
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where) == ("error", (1,), at(15))
    assert finding.proof == ((0, at(11)),)
    assert finding.found == "torch.load on rank 1 does not wait for the rename on rank 0"
    assert finding.links == ("file /job/last.pt",)


def test_a_collective_before_the_save_does_not_help():
    """The barrier stands at the wrong place."""
    ranks = [[*BARRIER, save("/job/a.pt", 13)], [*BARRIER, load("/job/a.pt", 15)]]
    assert len(ask(READ, *ranks).findings) == 1


def test_last_run_is_read_before_it_is_written_over():
    """Every rank resumes, then all train, then rank 0 saves."""
    ranks = [[load("/job/last.pt", 5), *BARRIER, *saved()], [load("/job/last.pt", 5), *BARRIER]]
    judged = ask(READ, *ranks)
    assert (judged.checked, judged.findings) == (1, ())


def test_written_again_while_others_read():
    """A barrier before the load, none after it: the next save comes too soon."""
    first = [*saved(), call(1, 12), load("/job/last.pt", 15), *saved(line=20)]
    (finding,) = ask(READ, first, [call(1, 12), load("/job/last.pt", 15)]).findings
    assert finding.cause == "it is written anew while another rank may still be at the copy before"


def test_a_folder_that_is_renamed_as_a_whole():
    """What lies in it is there when the folder has its name."""
    writes = [save("/job/staging/net.pt", 9), rename("/job/staging", "/job/done", 10)]
    assert len(ask(READ, writes, [load("/job/done/net.pt", 15)]).findings) == 1
    assert ask(READ, [*writes, *BARRIER], [*BARRIER, load("/job/done/net.pt", 15)]).findings == ()


def test_a_thread_that_was_not_waited_for():
    """A barrier of the main thread does not wait for a thread; to join it first does."""
    write = save("/job/last.pt", 10, thread="saver")
    reads = [*BARRIER, load("/job/last.pt", 15)]
    (finding,) = ask(READ, [write, *BARRIER], reads).findings
    assert finding.cause.startswith("thread saver writes it")
    assert ask(READ, [write, waited("saver", 11), *BARRIER], reads).findings == ()
    assert ask(READ, [write, waited("*", 11), *BARRIER], reads).findings == ()
    assert len(ask(READ, [write, waited("other", 11), *BARRIER], reads).findings) == 1


def test_a_question_that_decides():
    """Ranks ask whether it is there while one of them writes it: they went different ways, and that is linked."""
    ranks = [[*saved(), query("/job/last.pt", 14, True)], [query("/job/last.pt", 14, False)]]
    (finding,) = ask(READ, *ranks).findings
    assert (finding.where, finding.ranks, finding.links[-1]) == (at(14), (1,), "stop")
    assert finding.advice.startswith("Ask on one rank")
    assert finding.found.endswith("here rank 1 did not find it and went on without, and rank 0 found it")
    assert finding.cause == "rank 1 asked before rank 0 was done"


def test_who_loads_what_it_has_found_is_told():
    """The plain story of each rank."""
    ranks = [[*saved(), query("/job/last.pt", 14, True), load("/job/last.pt", 15)], [query("/job/last.pt", 14, False)]]
    (finding,) = ask(READ, *ranks).findings
    assert finding.found.endswith("and rank 0 found it and loaded it")


def test_where_both_have_found_it_nothing_is_told_of_answers():
    """They went the same way this time; another time they may not."""
    ranks = [[*saved(), query("/job/last.pt", 14, True), load("/job/last.pt", 15)],
             [query("/job/last.pt", 14, True), load("/job/last.pt", 15)]]  # fmt: skip
    findings = [f for f in ask(READ, *ranks).findings if "asks whether" in f.found]
    assert all("did not find it" not in finding.found for finding in findings)


def test_a_question_after_a_file_that_nobody_loads():
    """Whether some table is there decides nothing that we know of."""
    ranks = [[file("write", "open", "/job/table.csv", 9)], [query("/job/table.csv", 14, True)]]
    assert ask(READ, *ranks).findings == ()


def test_who_does_not_find_it_makes_it():
    """One rank was faster this time."""
    maker = [query("/job/c.npy", 8, False), file("write", "open", "/job/c.npy", 9)]
    reader = [query("/job/c.npy", 8, True), file("read", "open", "/job/c.npy", 12, existed=True)]
    (finding,) = ask(READ, maker, reader).findings
    assert (finding.where, finding.ranks) == (at(8), (1,))
    assert finding.cause.startswith("each rank that does not find the file makes it")


def test_who_did_not_find_it_has_met_the_others_before_it_is_made():
    """It resumes from what is there, and saves a checkpoint there after some steps."""
    maker = [query("/job/last.pt", 8, False), call(0, 9, "ddp-gradients"), save("/job/last.pt", 10)]
    resumed = [query("/job/last.pt", 8, True), load("/job/last.pt", 12)]
    findings = ask(READ, maker, resumed).findings
    assert findings
    assert not any("makes it" in finding.cause for finding in findings)


def test_a_list_of_files_counts_for_who_loads_from_it():
    """The newest of a folder, looked for while it is being written."""
    listing = file("query", "glob", "/job/*.pt", 14, existed=True)
    assert len(ask(READ, saved(), [listing, load("/job/old.pt", 15)]).findings) == 1
    assert ask(READ, saved(), [listing]).findings == ()


def test_waiting_for_a_file():
    """Rank 1 asks until the marker is there, that rank 0 makes when the save is over."""
    writes = [save("/job/last.pt", 10), file("write", "os.open", "/job/marker", 11)]

    def reads(path="/job/marker", **more):
        return [query(path, 14, True, **more), load("/job/last.pt", 15)]

    assert ask(READ, writes, reads(polled=True)).findings == ()
    assert len(ask(READ, writes, reads()).findings) == 1
    assert len(ask(READ, writes, reads(), lines={14: "found = exists(marker)  # while it lasts"}).findings) == 1
    # The file itself is there before it is whole, if it is not put there at once.
    assert len(ask(READ, writes, reads("/job/last.pt", polled=True)).findings) == 1
    assert ask(READ, saved(), reads("/job/last.pt", polled=True)).findings == ()


def test_what_is_counted():
    """Reads and checks for a file are accesses; a wait for it decides nothing by its answers."""
    assert plural(checks()[READ].unit) == "accesses"
    asked = ask(READ, [*saved(), *BARRIER], [*BARRIER, query("/job/last.pt", 14, True)])
    assert (asked.checked, asked.findings) == (1, ())
    wait = [query("/job/last.pt", 14, True, polled=True)]
    assert (ask(READ, saved(), wait).checked, ask(READ, saved(), [*wait, load("/job/last.pt", 15)]).checked) == (0, 1)


def test_asking_again_and_again():
    """Two answers of one line, with nothing between, are of a wait; those of two epochs are not."""
    writes = [save("/job/last.pt", 10), file("write", "os.open", "/job/marker", 11)]
    no, yes = query("/job/marker", 14, False), query("/job/marker", 14, True)
    assert ask(READ, writes, [no, yes, load("/job/last.pt", 15)]).findings == ()
    assert len(ask(READ, writes, [no, step(13), yes, load("/job/last.pt", 15)]).findings) == 1
    # Who does not find it, makes it, and asks again has not waited for anybody.
    own = file("write", "open", "/job/other", 13)
    assert len(ask(READ, writes, [no, own, yes, load("/job/last.pt", 15)]).findings) == 1


AGREED = call(1, 15, "all_reduce", detail="int64 x 1 min")


@pytest.mark.parametrize(("following", "expected"), [
    ([AGREED], []),
    ([call(1, 15, "broadcast_object_list", detail="1 objects", peer=0)], []),
    ([wrapped(14), AGREED], ["warning"]),  # something else lies between: nobody knows
    ([load("/job/last.pt", 15), AGREED], ["error"]),
    ([loaded("module", 15), AGREED], ["error"]),
    ([step(14), AGREED], ["error"]),
    ([call(1, 15, "all_reduce", detail="float32 x 4096 sum")], ["error"]),
    ([call(1, 15, "ddp-gradients")], ["error"]),
    ([], ["error"]),
])  # fmt: skip
def test_a_question_whose_answer_is_agreed_on(following, expected):
    """The collective right after it carries what was seen: ranks cannot decide differently."""
    found = ask(READ, saved(), [query("/job/last.pt", 14, True), *following]).findings
    assert [f.severity for f in found] == expected


def beats(times=2, path="/job/rank0.json"):
    """A small file that is replaced as a whole, time and again."""
    return [file("write", "open", f"{path}.new", 9), rename(f"{path}.new", path, 10)] * times


def look_at(path="/job/rank0.json", **more):
    return file("read", "open", path, 20, existed=True, **more)


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    # Some version is there, and any will do.
    ([*beats(1), *BARRIER, *beats()], [*BARRIER, look_at()], []),
    ([*beats(1), *BARRIER, *beats()], [*BARRIER, query("/job/rank0.json", 19, True), look_at()], []),
    # There may be none yet.
    (beats(), [look_at()], ["warning"]),
    (beats(), [query("/job/rank0.json", 19, True), look_at()], ["warning"]),
    # It says what to load.
    ([*beats(1), *BARRIER, *beats()], [*BARRIER, look_at(), load("/job/old.pt", 21)], ["error"]),
    # It is emptied, and then written: a reader may come between.
    ([beats()[0], *BARRIER, file("write", "open", "/job/rank0.json", 9)], [*BARRIER, look_at()], ["error"]),
    # Nobody reads it: that it is there says something.
    (beats(), [query("/job/rank0.json", 19, True)], ["error"]),
    # Parameters, as numpy keeps them.
    ([*beats(1, "/job/w.npy"), *BARRIER, *beats(1, "/job/w.npy")], [*BARRIER, look_at("/job/w.npy")], ["error"]),
])  # fmt: skip
def test_a_file_of_which_any_version_will_do(ours, theirs, expected):
    """What is always replaced as a whole, and is no state of a model, may be read at any time."""
    assert [f.severity for f in ask(READ, ours, theirs).findings] == expected


def test_under_a_lock():
    """A lock on both sides keeps them apart."""
    write, read = (
        file("write", "open", "/job/c.npy", 9, locks=[7]),
        file("read", "open", "/job/c.npy", 12, existed=True),
    )
    assert ask(READ, [write], [(read[0], read[1] | {"locks": [7]})]).findings == ()
    assert len(ask(READ, [write], [read]).findings) == 1


def test_removed_before_the_last_read():
    """Rank 0 removes the file when it has loaded; a collective in between lets it."""
    first = [*saved(), call(1, 12), load("/job/last.pt", 15)]
    second = [call(1, 12), load("/job/last.pt", 15)]
    (finding,) = ask(READ, [*first, remove("/job/last.pt", 17)], second).findings
    assert (finding.ranks, finding.where, finding.proof) == ((0,), at(17), ((1, at(15)),))
    gradients = call(2, 16, "ddp-gradients")
    assert ask(READ, [*first, gradients, remove("/job/last.pt", 17)], [*second, gradients]).findings == ()
    assert len(ask(READ, [*first, file("remove", "shutil.rmtree", "/job", 17)], second).findings) == 1


def test_one_finding_for_one_line():
    """Every epoch's checkpoint is read too soon: that is one mistake."""
    epochs = [f"/job/epoch-{e}.pt" for e in range(5)]
    (finding,) = ask(READ, [save(p, 10) for p in epochs], [load(p, 15) for p in epochs]).findings
    assert finding.count == 5


def test_what_several_ranks_write_is_no_race():
    """A file with two writers is told of as such."""
    both = [*saved(), load("/job/last.pt", 15)]
    judged = ask(READ, both, both)
    assert (judged.checked, judged.findings) == (0, ())
    assert "see checkpoint-single-writer" in judged.skipped_because


def test_the_load_that_failed_is_linked():
    """A load that found half a file ended the program."""
    ranks = [[save("/job/a.pt", 10)], [load("/job/a.pt", 15), raised("PytorchStreamReader failed", 15)]]
    (finding,) = ask(READ, *ranks).findings
    assert finding.links == ("file /job/a.pt", "stop")


def test_a_world_of_which_little_is_known():
    """Missing ranks, and evidence that the disk had no room for, accuse nobody."""
    over = World([rank(1, [load("/job/a.pt", 15)], 3)], 3)
    assert [f for f in run_findings(over, *FILES) if f.severity == "error"] == []
    over = world([save("/job/a.pt", 10)], [load("/job/a.pt", 15)])
    over.ranks[0].process.gap = "there was no room for more"
    assert verdict(READ, over).findings == ()
    assert run_findings(World([], 2), *FILES) == []


# --- under NCCL

QUEUED = call(1, 12, "all_reduce", queued=True)


def _ahead(*calls):
    return ev.HostAhead, {"calls": list(calls)}


def test_a_load_that_was_seen_before_the_queued_call_was_over_is_a_race():
    """save, all_reduce, load: the call holds up the devices, and no host."""
    judged = ask(READ, [*saved(), QUEUED], [QUEUED, load("/job/last.pt", 15), _ahead(2)])
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where) == ("error", (1,), at(15))
    assert finding.found == "torch.load on rank 1 does not wait for the rename on rank 0"
    assert "only queued" in finding.cause
    assert "barrier" in finding.advice


@pytest.mark.parametrize(
    "theirs",
    [
        [QUEUED, load("/job/last.pt", 15)],
        [QUEUED, call(2, 13), load("/job/last.pt", 15), _ahead(2)],
        [QUEUED, _ahead(2), load("/job/last.pt", 15)],
    ],
    ids=["synchronised, or over by luck", "barrier", "ahead of something else before"],
)
def test_a_load_that_may_have_waited_for_the_device_is_none(theirs):
    """A ``.item()`` in between is not seen: what is not proven is not accused."""
    ours = [*saved(), QUEUED, call(2, 13)]
    assert ask(READ, ours, theirs).findings == ()


def test_a_removal_that_was_seen_before_the_queued_call_was_over():
    """Load on one rank, all_reduce, and the other one takes the file away."""
    judged = ask(
        READ,
        [*saved(), *BARRIER, call(2, 12, "all_reduce", queued=True), remove("/job/last.pt", 16), _ahead(5)],
        [*BARRIER, load("/job/last.pt", 15), call(2, 12, "all_reduce", queued=True)],
    )
    assert len(judged.findings) == 1
    assert "only queued" in judged.findings[0].cause


def test_a_queued_call_that_does_not_stand_between_the_two_is_not_told_of():
    """It was queued before the save as well: there is nothing that was meant to keep them apart."""
    (finding,) = ask(READ, [QUEUED, *saved()], [QUEUED, load("/job/last.pt", 15), _ahead(2)]).findings
    assert "only queued" not in finding.cause


def test_a_second_save_that_only_a_queued_call_keeps_apart():
    """The copy before is there; the call is what was meant to keep the load waiting for the new one."""
    ours = [save("/job/a.pt", 9), *BARRIER, save("/job/a.pt", 10), call(2, 12, "all_reduce", queued=True)]
    theirs = [*BARRIER, call(2, 12, "all_reduce", queued=True), load("/job/a.pt", 15), _ahead(3)]
    (finding,) = ask(READ, ours, theirs).findings
    assert "only queued" in finding.cause


# --- what torch.distributed.checkpoint saves in the background


def in_background(*, over, path="/job/c", staged=False, fails=False):
    """A rank that loads what it saves asynchronously."""
    saves = Forms().saved(10, "/job/c", plain("w", 1), how="dcp.async_save", ranks=(0, 1))
    written = ev.StateWritten, {"save": 0, "changed": [], "staged": staged}
    loads = ev.LoadBegan, {"path": path, "site": 11}
    end = [raised("metadata is None", 11)] if fails else []
    return ask(READ, *[[*saves, written, loads, *end] if over else [*saves, loads, written, *end]] * 2)


@pytest.mark.parametrize("fails", [True, False])
def test_a_load_while_it_is_saved(fails):
    """Its metadata come last, so that there are none yet, or old ones."""
    (finding,) = in_background(over=False, fails=fails).findings
    assert (finding.severity, finding.ranks, finding.where) == ("error", (0, 1), at(11))
    assert ("stop" in finding.links) == fails


def test_a_load_when_it_is_staged_alone():
    """A copy was made, which says nothing of files."""
    assert len(in_background(over=True, staged=True).findings) == 1


def test_a_load_after_it_was_saved():
    judged = in_background(over=True)
    assert (judged.checked, judged.findings) == (2, ())


def test_a_load_from_elsewhere():
    assert in_background(over=False, path="/job/before").findings == ()
