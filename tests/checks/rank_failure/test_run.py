"""The judge of rank-failure, over endings written by hand: who was first, and what is only a consequence."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from ddpcheck.judging import known_errors
from ddpcheck.judging.world import Moment, World
from tests.judging.written import call, ended, load, raised, rank, save, step, world

judge = judge_of("rank-failure", "run")

CLOSED = "[…]gloo/transport/tcp/pair.cc: Connection closed by peer"
LATE = "[…]gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete"


def pulse(pending, line=5, doing="wait", **more):
    return ev.Pulse, {"site": line, "doing": doing, "pending": pending, "since": 0.0, **more}


def lost(line=5, message=CLOSED, **more):
    return raised(message, line, lost_peer=True, **more)


def of(*ranks):
    """A world of ranks that were built one by one."""
    return World(list(ranks), len(ranks))


def ask(over):
    judged = judge(over)
    assert judged.check == "rank-failure"
    return judged


def failed(*ranks):
    (finding,) = ask(of(*ranks)).findings
    return finding


# --- silent


def test_ranks_that_end_well_hold():
    """Each rank counts."""
    judged = ask(world([ended()], [ended()], [ended()]))
    assert (judged.checked, judged.findings) == (3, ())


def test_an_abort_at_the_exit_of_the_interpreter_is_none():
    """torch's threads may outlive an interpreter whose script has come to its end."""
    assert ask(of(rank(0, [ended()], exit_code=None, signal=6), rank(1, [ended()]))).findings == ()


def test_a_program_that_was_ended_from_outside_has_not_failed():
    """It has hung, which another check tells; how it would have ended was not seen."""
    judged = ask(world([call(1, 5), pulse(2)], [], exit_code=None, signal=15))
    assert (judged.findings, judged.checked, judged.of) == ((), 0, 2)
    assert "were ended from outside" in judged.skipped_because


def test_ranks_that_others_have_ended_do_not_count():
    """A process that goes on behind its end is not seen to come to one."""
    goes_on = rank(1, [ended()], exit_code=None, signal=15)
    assert ask(of(rank(0, [ended()]), goes_on)).checked == 2, "the agent may be quick"
    stopped = ask(World([rank(0, [ended()]), goes_on], 2, stopped=Moment(at=99.0)))
    assert (stopped.checked, stopped.of) == (1, 2)


@pytest.mark.parametrize("code", [None, 0])
def test_leaving_by_os_exit_with_the_others_is_an_end(code):
    """A way to avoid what happens at exit."""
    assert ask(world([ended(how="os._exit", code=code)], [ended(how="os._exit", code=code)])).findings == ()


# --- failures


def test_the_first_failure_is_told_and_its_consequences_named():
    """The rank whose own exception came first, its text and its innermost line; lost peers are consequences."""
    finding = failed(
        rank(0, [call(1, 5), lost(5)], exit_code=1),
        rank(1, [call(1, 5), raised("no such thing", 8, kind="KeyError", at=0.2)], exit_code=1),
    )
    assert finding.found == ("rank 1 raised KeyError: no such thing; rank 0 then lost its connection, as a consequence")
    assert (finding.ranks, finding.subject, finding.where.line) == ((1,), "KeyError", 8)
    assert finding.links == ("stop",)


def test_a_lost_peer_that_spoke_first_is_a_consequence_all_the_same():
    """The clock decides among failures of the ranks' own alone."""
    finding = failed(rank(0, [lost(5, at=0.2)], exit_code=1), rank(1, [raised("no", 8, at=0.9)], exit_code=1))
    assert finding.ranks == (1,)


def test_ranks_that_failed_alike_fail_together():
    """The same exception at the same line is one failure; another one comes later."""
    finding = failed(
        rank(0, [raised("no", 8, at=0.3)], 3, exit_code=1),
        rank(1, [raised("no", 8, at=0.2)], 3, exit_code=1),
        rank(2, [raised("other", 9, at=0.4)], 3, exit_code=1),
    )
    assert finding.ranks == (0, 1)
    assert finding.found == "ranks 0 and 1 raised RuntimeError: no; later rank 2 raised RuntimeError: other"


def test_who_waited_for_it_is_told():
    """The others are in a call when the agent ends them."""
    finding = failed(
        rank(0, [call(1, 5), pulse(2)], exit_code=None, signal=15), rank(1, [raised("no", 8)], exit_code=1)
    )
    assert finding.found.endswith("rank 0 waited for it in barrier()")


def test_the_lines_of_a_traceback_are_proof():
    """Those of the user's that are on record, the innermost first."""
    text = 'File "/job/train.py", line 30, in main\n  File "/job/train.py", line 8, in f\n  File "/lib/x.py", line 9'
    finding = failed(rank(0, [raised("no", 8, text=text)], exit_code=1), rank(1, []))
    assert [site.line for _, site in finding.proof] == [8, 30]


@pytest.mark.parametrize(
    ("number", "words"), [(9, "want of memory"), (11, "native code"), (7, "/dev/shm"), (6, "gave")]
)
def test_a_rank_that_was_killed(number, words):
    """The signal by its name, what it may mean, and where another rank missed it."""
    finding = failed(rank(0, [call(1, 5), lost(5)], exit_code=1), rank(1, [call(1, 5), step(7)], exit_code=None,
                                                                       signal=number))  # fmt: skip
    assert finding.ranks == (1,)
    assert "rank 1 was killed by SIG" in finding.found
    assert words in finding.cause
    assert finding.where.line == 5


def test_a_rank_that_was_killed_in_a_call_is_there():
    """The last that it said was where it was."""
    finding = failed(rank(0, [], exit_code=None, signal=15), rank(1, [step(7), call(1, 6)], exit_code=None, signal=11))
    assert finding.where.line == 6


def test_a_rank_that_crashed_at_its_exit():
    """A segmentation fault after the end of the script is reported as such."""
    finding = failed(rank(0, [ended()]), rank(1, [ended()], exit_code=None, signal=11))
    assert "when its script had come to its end" in finding.found


def test_a_rank_that_is_killed_after_a_failure_is_a_consequence():
    """An agent ends the others by SIGTERM, and by SIGKILL where that does not help."""
    finding = failed(rank(0, [], exit_code=None, signal=9), rank(1, [raised("no", 8)], exit_code=1))
    assert finding.ranks == (1,)


def test_a_rank_that_left_with_a_code():
    """sys.exit(3), or what another language's runtime does."""
    finding = failed(rank(0, [call(1, 5), lost(5)], exit_code=1), rank(1, [step(7), ended()], exit_code=3))
    assert finding.found.startswith("rank 1 left with exit code 3")


@pytest.mark.parametrize(("code", "told"), [(0, 0), (4, 4)])
def test_a_rank_that_left_early_by_os_exit(code, told):
    """The others lost it: its line is told."""
    finding = failed(
        rank(0, [call(1, 5), lost(5)], exit_code=1),
        rank(1, [ended(how="os._exit", code=code, site=8)], exit_code=code),
    )
    assert finding.found.startswith(f"rank 1 left by os._exit({told}) while the others went on")
    assert finding.where.line == 8


# --- only consequences


def test_a_timeout_names_who_was_elsewhere():
    """A rank gave up waiting: where the other one was is told, and the timeout where it was chosen."""
    over = of(
        rank(0, [pulse(None, 8, "save"), call(1, 5, at=0.9), lost(5, at=1.0)], exit_code=1),
        rank(1, [call(1, 5), lost(5, LATE, at=0.8)], exit_code=1),
    )
    (finding,) = ask(over).findings
    assert (finding.ranks, finding.where.line) == ((0,), 5)
    assert "rank 1 gave up waiting in barrier()" in finding.found
    assert "rank 0 was then at train.py:8, in save()" in finding.found
    assert finding.also == ("no-hang",)


def test_a_connection_that_broke():
    """Nobody has failed, and nobody was late."""
    finding = failed(rank(0, [call(1, 5), lost(5)], exit_code=1), rank(1, [call(1, 5), lost(5)], exit_code=1))
    assert finding.found.startswith("ranks 0 and 1 lost the others in barrier()")


def test_a_peer_that_left_before():
    """A rank that left after the same calls is named."""
    finding = failed(rank(0, [call(1, 5), lost(5)], exit_code=1), rank(1, [call(1, 5), ended(at=0.25)]))
    assert (finding.ranks, finding.cause) == ((1,), "rank 1 had ended, or left the group, before")


# --- messages that are known


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Expected to have finished reduction in the prior iteration before starting a new one.", "had no part"),
        ('expect_autograd_hooks_ INTERNAL ASSERT FAILED at "reducer.cpp":1732', "within no_sync()"),
        ("Expected to mark a variable ready only once. This error is caused by", "outside of the forward"),
        ("Parameter at index 7 with name a has been marked as ready twice.", "outside of the forward"),
        ("The server socket has failed to listen. code: -98, name: EADDRINUSE", "listens at the port"),
        ("DistributedDataParallel device_ids and output_device arguments only work with", "device_ids was given"),
        ("'SequentialSampler' object has no attribute 'set_epoch'", "no DistributedSampler"),
        ("Error(s) in loading state_dict for Net:\n\tUnexpected key(s): \"module.w\"", "prefix 'module.'"),
        ("[0]: params[0] in this process with sizes [3] appears not to match sizes of the same", "different"),
        ("one of the variables needed for gradient computation has been modified by an inplace operation", "buffers"),
        ("CUDA error: invalid device ordinal", "global rank"),
        ("CUDA out of memory. Tried to allocate", "ran out of memory"),
        ("Default process group has not been initialized, please make sure", "before init_process_group"),
        ("Weights only load failed. This file can still be loaded", "tensors, numbers, text"),
        ("Numpy is not available", "need numpy"),
        ("PytorchStreamReader failed reading zip archive: failed finding central directory", "not whole"),
    ],
)  # fmt: skip
def test_known_messages_are_explained(message, words):
    """What lies behind them, and what to do, stands beside torch's own words."""
    finding = failed(rank(0, [raised(message, 8)], exit_code=1), rank(1, []))
    assert words in finding.cause
    assert finding.advice


def test_a_port_that_is_taken_is_a_failure_of_ones_own():
    """It comes as an error of the network, and tells of no other rank."""
    finding = failed(
        rank(0, [raised("EADDRINUSE", 8, kind="DistNetworkError", lost_peer=True)], exit_code=1),
        rank(1, [call(1, 5), lost(5)], exit_code=1),
    )
    assert finding.ranks == (0,)


def test_a_message_is_told_to_its_end():
    """What is specific in torch's own words stands last; of a later failure the beginning will do."""
    long = "x" * 1500 + " name blocks.2.0.bias"
    others = rank(1, [raised("y" * 1500 + "end", 9, at=0.9)], exit_code=1)
    finding = failed(rank(0, [raised(long, 8, at=0.2)], exit_code=1), others)
    assert "name blocks.2.0.bias; later rank 1 raised" in finding.found
    assert "end" not in finding.found


def test_unknown_messages_are_not_explained():
    """Nothing is guessed."""
    made = ev.Raised(n=1, at=0.0, kind="ValueError", message="no", text="", site=0, lost_peer=False)
    assert known_errors.explain(made) is None
    assert not known_errors.is_timeout(made)
    assert not known_errors.is_timeout(None)


# --- who has sent the signal

LOST_IT = rank(0, [call(1, 5), lost(5)], exit_code=1)


def sent(line, number=9, pid=101):
    """What a process puts down before it sends a signal; that of rank 1 has this pid."""
    return ev.SentSignal, {"pid": pid, "signal": number, "site": line}


def killed(*records, number=9):
    return rank(1, [call(1, 6), *records], exit_code=None, signal=number)


@pytest.mark.parametrize("number", [6, 9, 11])
def test_a_program_that_kills_itself_is_said_to(number):
    """The line is named, and nothing is supposed of memory or of native code."""
    finding = failed(LOST_IT, killed(sent(8, number), number=number))
    assert finding.cause == "the program itself sends this signal to its own process (train.py:8)"
    assert finding.where.line == 8
    assert "faulthandler" not in finding.advice


def test_a_rank_that_kills_another_one_is_named():
    """It is the one whose line it is."""
    finding = failed(rank(0, [call(1, 5), sent(8), lost(5)], exit_code=1), killed())
    assert finding.cause == "rank 0 sends it this signal (train.py:8)"


@pytest.mark.parametrize(
    "records",
    [[sent(8, number=10)], [sent(8, pid=999)], [sent(8), call(2, 6)]],
    ids=["another signal", "to another process", "which it has survived"],
)
def test_another_signal_is_no_cause(records):
    """A process may send signals for other ends, and handle them."""
    assert "the program itself" not in failed(LOST_IT, killed(*records)).cause


def starved(number):
    one = killed()
    one.memory_kills = number
    return failed(LOST_IT, one)


def test_want_of_memory_is_the_cause_where_the_kernel_has_counted_it():
    """By a control group's oom_kill."""
    assert starved(1).cause.startswith("the machine, or the job's share of it, was out of memory")
    assert "smaller batches" in starved(1).advice


def test_it_is_not_where_the_kernel_has_counted_none():
    """Somebody else has sent it."""
    assert "not the kernel for want of memory" in starved(0).cause
    assert "smaller batches" not in starved(0).advice


def test_it_is_one_of_several_possibilities_where_nobody_has_counted():
    """And no step to take is named but to look who it was."""
    assert " or a scheduler" in starved(None).cause
    assert starved(None).advice.startswith("Look at the kernel's log (dmesg)")


# --- a file that one rank did not find


def missing(path, *reads, line=8, saved=True):
    """Rank 1 finds no file at a line; what rank 0 has read, and has saved before."""
    saves = [save(one, 4) for one, _ in reads] if saved else []
    others = [rank(0, [*saves, *(load(one, at) for one, at in reads)], exit_code=None, signal=15)]
    message = f"[Errno 2] No such file or directory: '{path}'"
    return failed(*others, rank(1, [raised(message, line, kind="FileNotFoundError")], exit_code=1))


def test_what_the_others_read_at_the_line_is_told():
    """The ranks have chosen other files."""
    finding = missing("/job/epoch-2.pt", ("/job/epoch-3.pt", 8))
    assert "; at this line rank 0 read epoch-3.pt" in finding.found
    assert finding.cause.startswith("the ranks do not agree on which of the saved files")
    assert "broadcast the path" in finding.advice


def test_a_file_for_each_rank_is_no_disagreement():
    """The names differ by the rank alone: that rank 1's is missing has another cause, which nobody knows."""
    finding = missing("/job/state-1.pt", ("/job/state-0.pt", 8))
    assert "rank 0 read state-0.pt" in finding.found
    assert finding.cause == ""


def test_data_files_may_differ():
    """Each rank has its own, and nobody has saved them in this run."""
    finding = missing("/job/b.pt", ("/job/a.pt", 8), saved=False)
    assert "rank 0 read a.pt" in finding.found
    assert finding.cause == ""


def test_a_rank_that_goes_through_many_files_is_at_another_one():
    """The line reads all of them in turn."""
    assert missing("/job/b.pt", ("/job/a.pt", 8), ("/job/c.pt", 8)).cause == ""


@pytest.mark.parametrize("read", [("/job/epoch-2.pt", 8), ("/job/epoch-3.pt", 9)], ids=["the same", "elsewhere"])
def test_what_does_not_show_it_is_not_told(read):
    """The same file, which was there for rank 0; or another one, at another line."""
    finding = missing("/job/epoch-2.pt", read)
    assert "read" not in finding.found
    assert finding.cause == ""
