"""From what the judges say to one verdict: the word, the exit code, each check's status, and what else is told."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks, has_part
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Judged, Process
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.ranks_we_crashed import brought_down
from ddpcheck.verdict.verdict import NOT_ASKED, Exit, RankResult, conclude
from ddpcheck.verdict.warnings_as_errors import warnings_as_errors
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.versions import installed

HERE = CallSite(file="train.py", line=5, function="train")


def finding(check, severity="error", links=(), where=None, **more):
    given = {"ranks": (0,), "subject": check, "expected": "this", "found": "that", "advice": "Fix it."}
    return Finding(check=check, severity=severity, links=links, where=where, **{**given, **more})


def judged(*findings, **checked):
    """What the judges of one world say: checks with underscores, and how often they were checked."""
    found = {check: Judged(check=check, checked=0) for check in checks()}
    for name, times in checked.items():
        found[name.replace("_", "-")] = Judged(check=name.replace("_", "-"), checked=times)
    for one in findings:
        before = found[one.check]
        found[one.check] = replace(before, checked=before.checked or 1, findings=(*before.findings, one))
    return found


def process(pid, *records, rank=None, size=2, node=0, worker_of=None):
    """A process with its records, numbered in order; one with a rank has joined a group."""
    made = Process(f"p{pid}")
    began = {"parent": 1, "host": "h", "argv": [], "folder": "/work", "wall": 100.0}
    numbered = [ev.Began(n=0, at=1.0, pid=pid, node=node, worker_of=worker_of, **began)]
    numbered.append(ev.Site(n=1, at=1.0, id=1, file="train.py", line=5, function="train", text="loss.backward()"))
    if rank is not None:
        joining = {"backend": "gloo", "local_rank": rank, "site": 1}
        numbered.append(ev.Joined(n=2, at=1.0, rank=rank, world_size=size, token="t", **joining))
    for n, (kind, fields) in enumerate(records, 3):
        numbered.append(kind(n=n, at=1.0 + n / 10, **fields))
    made.add(numbered)
    return made


def raised(kind="ValueError", message="no such file\nat all", lost_peer=False):
    return ev.Raised, {"kind": kind, "message": message, "text": "", "site": 1, "lost_peer": lost_peer}


def ended(how="exit", code=None):
    return ev.Ended, {"how": how, "code": code, "site": 0, "groups": 0}


def child(pid, code=None, number=None):
    return ev.ChildEnded, {"pid": pid, "code": code, "signal": number}


def step(number, whole=True, looked=True):
    digest = b"d" * ev.WIDTH if looked else b""
    return ev.Step, {
        "optimizer": 0, "number": number, "site": 1, "gradients": digest, "parameters": digest, "whole": whole,
        "state": {}, "rates": [], "scale": None, "usage": [], "backwards": 1, "backward_site": 1,
        "collectives": 0,
    }  # fmt: skip


# --- the word, and the exit code


@pytest.mark.parametrize(
    ("said", "word", "code", "strictly"),
    [
        (judged(gradient_sync=3), "held", 0, 0),
        (judged(gradient_sync=3, no_hang=2, rank_failure=2), "held", 0, 0),
        (judged(no_hang=2, rank_failure=2, process_hygiene=2), "nothing-checked", 3, 3),
        (judged(), "nothing-checked", 3, 3),
        (judged(finding("gradient-sync")), "violated", 1, 1),
        (judged(finding("checkpoint-atomic-save", "warning")), "held", 0, 1),
        (judged(finding("process-hygiene", "warning")), "nothing-checked", 3, 1),
        (judged(finding("rank-failure"), gradient_sync=3), "failed", 1, 1),
        (judged(finding("no-hang"), gradient_sync=3), "hung", 1, 1),
        (judged(finding("no-hang", "warning"), gradient_sync=3), "held", 0, 1),
        (judged(finding("rank-failure"), finding("gradient-sync")), "failed", 1, 1),
    ],
)
def test_the_word_and_the_exit_code(said, word, code, strictly):
    """They follow from the errors alone; --strict counts warnings too."""
    verdict = conclude([said])
    assert (verdict.verdict, verdict.exit_code(), verdict.exit_code(strict=True)) == (word, code, strictly)
    strict = warnings_as_errors(verdict)
    assert (strict.verdict, strict.exit_code()) == (word if strictly == code else "violated", strictly)


STOP = ("stop",)


@pytest.mark.parametrize(
    ("findings", "word", "told", "hung"),
    [
        # What explains a hang or a failure is told in its place; the word stays.
        ((finding("batch-count", links=STOP), finding("no-hang", links=STOP)), "hung", ["batch-count"], True),
        ((finding("device-placement", links=STOP), finding("rank-failure", links=STOP)), "failed", ["device-placement"],
         False),
        # A rank that fails leaves the others waiting.
        ((finding("rank-failure", links=STOP), finding("no-hang", links=STOP)), "failed", ["rank-failure"], False),
        ((finding("rank-failure"), finding("no-hang")), "hung", ["rank-failure", "no-hang"], True),
        # Both follow from a third: it depends on whether the program ended by itself.
        ((finding("batch-count", links=STOP), finding("rank-failure", links=STOP), finding("no-hang", links=STOP)),
         "failed", ["batch-count"], False),
        ((finding("batch-count", links=STOP), finding("rank-failure", links=STOP), finding("no-hang", links=STOP)),
         "hung", ["batch-count"], True),
    ],
)  # fmt: skip
def test_consequences_do_not_hide_how_it_went(findings, word, told, hung):
    """One finding for one mistake, and yet the word for how the program went down."""
    verdict = conclude([judged(*findings, gradient_sync=1)], hung=hung)
    assert (verdict.verdict, [f.check for f in verdict.findings]) == (word, told)
    assert {f.check for f in findings} == {c for c, r in verdict.checks.items() if r.status == "violated"}


@pytest.mark.parametrize(
    ("findings", "statuses"),
    [
        ([finding("buffer-sync", "warning")], {"buffer-sync": "at-risk"}),
        ([finding("buffer-sync", "warning"), finding("buffer-sync", where=HERE)], {"buffer-sync": "violated"}),
        # What follows from a warning is at risk, and what follows from an error is violated.
        ([finding("batch-count", "warning", also=("no-hang",))], {"batch-count": "at-risk", "no-hang": "at-risk"}),
        (
            [finding("batch-count", also=("no-hang",)), finding("shard-partition", "warning", also=("no-hang",))],
            {"batch-count": "violated", "no-hang": "violated", "shard-partition": "at-risk"},
        ),
    ],
)
def test_warnings_alone_put_a_check_at_risk(findings, statuses):
    """One error is enough to violate it."""
    checks = conclude([judged(*findings, gradient_sync=1)]).checks
    assert {c: r.status for c, r in checks.items() if r.status in ("at-risk", "violated")} == statuses


def test_a_defect_of_ddpcheck_has_a_code_of_its_own():
    """It is never told as held; what is known to be broken is told first."""
    assert conclude([judged(gradient_sync=3)], internal=["a judge raised"]).exit_code() == Exit.INTERNAL == 4
    assert conclude([judged(finding("gradient-sync"))], internal=["a judge raised"]).exit_code() == Exit.BROKEN


# --- the checks


def test_every_check_has_a_status():
    """Held, violated or not checked, over all worlds, and why where it was not checked."""
    first = judged(gradient_sync=3, batch_count=1)
    first["epoch-reshuffle"] = Judged(check="epoch-reshuffle", checked=0, skipped_because="there was one epoch")
    second = judged(finding("batch-count", also=("no-hang",)), gradient_sync=2)
    found = conclude([first, second]).checks
    assert list(found) == list(checks())
    assert (found["gradient-sync"].status, found["gradient-sync"].checked) == ("held", 5)
    assert (found["batch-count"].status, found["batch-count"].checked) == ("violated", 2)
    assert found["no-hang"].status == "violated"
    assert found["epoch-reshuffle"].skipped_because == "there was one epoch"
    assert found["buffer-sync"].skipped_because == "nothing was seen that it could judge"
    assert {found[check].skipped_because for check in checks() if not has_part(check, "run")} == {
        "one run cannot show it: it takes a second one to compare with, as ddpcheck.check_trainer does"
    }
    assert all((result.skipped_because is None) == (result.status != "not-checked") for result in found.values())


def test_coverage_says_how_many_there_were_where_that_is_known():
    """Of draws of random numbers it is known how many were compared, and no more."""
    found = conclude([judged(rng_independence=10, gradient_sync=3)]).checks
    assert (found["rng-independence"].of, found["rng-independence"].coverage) == (None, "10 draws")
    assert (found["gradient-sync"].of, found["gradient-sync"].coverage) == (3, "3 of 3 windows")


def test_without_a_group_the_reason_is_that():
    """A program that made no process group is told so."""
    found = conclude([]).checks
    assert found["gradient-sync"].skipped_because == "no process group of two ranks or more was seen"


def test_checks_that_nobody_asked_for_are_left_out():
    """Their findings do not count, and consequences of them stand for themselves."""
    said = judged(
        finding("reducer-coverage", links=("wrapper 0",)),
        finding("gradient-sync", links=("wrapper 0",)),
        finding("checkpoint-atomic-save", "warning"),
    )
    assert [f.check for f in conclude([said]).findings] == ["reducer-coverage", "checkpoint-atomic-save"]
    verdict = conclude([said], chosen={"gradient-sync"})
    assert [f.check for f in verdict.findings] == ["gradient-sync"]
    assert verdict.checks["reducer-coverage"].skipped_because == NOT_ASKED
    assert verdict.checks["reducer-coverage"].status == "not-checked"


def test_how_a_program_goes_down_is_told_whatever_was_asked_for():
    """A crash is no matter of choice; a warning about endings is."""
    said = judged(finding("rank-failure"), gradient_sync=3)
    verdict = conclude([said], chosen={"gradient-sync"})
    assert (verdict.verdict, verdict.checks["rank-failure"].status) == ("failed", "violated")
    said = judged(finding("rank-failure", "warning"), gradient_sync=3)
    assert conclude([said], chosen={"gradient-sync"}).findings == ()


def test_endings_alone_count_where_they_alone_were_asked_for():
    """A run that was to be watched for hangs, and had none, was checked."""
    said = judged(no_hang=2, rank_failure=2)
    assert conclude([said], chosen={"no-hang"}).verdict == "held"
    assert conclude([said], chosen={"no-hang", "gradient-sync"}).verdict == "nothing-checked"


# --- findings


def test_errors_come_first_and_one_line_is_one_finding():
    """Two worlds that show the same fault at the same line have one finding, with both counts."""
    one = judged(finding("checkpoint-atomic-save", "warning"), finding("gradient-sync", where=HERE, count=3))
    two = judged(finding("gradient-sync", where=HERE, count=4, ranks=(1,)))
    findings = conclude([one, two]).findings
    assert [f.check for f in findings] == ["gradient-sync", "checkpoint-atomic-save"]
    assert (findings[0].count, findings[0].ranks) == (7, (0, 1))


# --- what no judge of a world has seen


def test_a_script_that_raises_before_it_is_a_rank():
    """The exception is the finding, with its line, and the ranks that the launcher knows."""
    both = [process(7, raised()), process(8, raised())]
    ranks = [RankResult(rank=r, exit_code=1, host="h", pid=7 + r) for r in (0, 1)]
    verdict = conclude([], processes=both, ranks=ranks)
    assert (verdict.verdict, verdict.world_size, verdict.folder) == ("failed", 2, "/work")
    (found,) = verdict.findings
    assert (found.check, found.ranks, found.where, found.count) == ("rank-failure", (0, 1), HERE, 2)
    assert found.found == "ValueError: no such file, raised before the process had joined a process group"
    assert verdict.lines == {"train.py:5": "loss.backward()"}


def test_an_own_exception_comes_before_the_loss_of_a_peer():
    """What only tells of another rank's end is not the cause; nor is what a loader's worker raised."""
    there = [
        process(7, raised("DistNetworkError", lost_peer=True)),
        process(9, raised("WorkerError"), worker_of=7),
        process(8, (ev.Pulse, {"site": 0, "doing": "", "pending": None}), raised("KeyError", "")),
    ]
    (found,) = conclude([], processes=there, failed=True).findings
    assert (found.subject, found.found) == (
        "KeyError",
        "KeyError, raised before the process had joined a process group",
    )


def test_exit_codes_are_told_where_there_is_no_exception():
    """A program that never imported torch, or left by os._exit, has its codes as the finding."""
    ranks = [RankResult(rank=0, exit_code=3), RankResult(rank=1, exit_code=3), RankResult(rank=2, signal=11)]
    verdict = conclude([], ranks=[*ranks, RankResult(rank=3, exit_code=0)])
    (found,) = verdict.findings
    assert (verdict.verdict, found.ranks) == ("failed", (0, 1, 2))
    assert found.found == "exit code 3 of ranks 0 and 1, SIGSEGV of rank 2"
    assert conclude([], failed=True).findings[0].found == "that the program ended with an error"
    assert conclude([], ranks=[RankResult(rank=0, exit_code=0)]).verdict == "nothing-checked"


def test_an_abort_after_the_end_is_a_note():
    """gloo's abort at the shutdown of an interpreter makes no failure of a script that had ended; an early one does."""
    parent = process(1, child(7, 0), child(8, number=int(signal.SIGABRT)))
    found = worlds([parent, process(7, ended(), rank=0), process(8, ended(), rank=1)])
    verdict = conclude([judged(gradient_sync=1)], worlds=found, failed=True)
    assert (verdict.verdict, verdict.findings) == ("held", ())
    assert "interpreter of rank 1 aborted as it shut down" in verdict.notes[0]
    found = worlds([parent, process(7, ended(), rank=0), process(8, rank=1)])
    verdict = conclude([judged(gradient_sync=1)], worlds=found, failed=True)
    assert (verdict.verdict, verdict.findings[0].found) == ("failed", "SIGABRT of rank 1")


def test_processes_that_wait_to_become_ranks():
    """A hang before there is a group names the ranks that never came."""
    joining = {"world_size": 3, "site": 1}
    there = [process(7 + r, (ev.Joining, {"rank": r, **joining})) for r in (0, 2)]
    verdict = conclude([], processes=there, hung=True)
    (found,) = verdict.findings
    assert (verdict.verdict, found.check, found.ranks, found.where) == ("hung", "no-hang", (1,), HERE)
    assert found.expected == "3 processes to join the process group"
    assert found.found == "2 processes waiting in init_process_group for rank 1"
    assert found.proof == ((2, HERE),)


def test_a_hang_that_nobody_explains_is_told():
    """Of ranks that stand still it is told where each stands; of a program without ranks, the word at least."""
    call = {"op": "barrier", "group": "world", "number": 1, "detail": "", "site": 1}
    waits = ev.Pulse, {"site": 1, "doing": "wait", "pending": 3, "since": 1.3}
    found = worlds([process(7, (ev.Call, call), waits, rank=0), process(8, rank=1)])
    verdict = conclude([judged()], worlds=found, hung=True)
    assert (verdict.verdict, verdict.findings[0].found) == ("hung", "none for as long as the stall timeout allows")
    assert [s.state for s in verdict.hang.stands] == ["waits", "runs"]
    verdict = conclude([], processes=[process(7)], hung=True)
    assert (verdict.verdict, verdict.hang) == ("hung", None)


# --- what else is told


def test_what_the_evidence_says_of_the_run():
    """Ranks, nodes, steps and the folder are read from the evidence where nobody gives them."""
    parent = process(1, child(8, 0))
    first = process(7, *(step(n) for n in range(3)), rank=0)
    found = worlds([parent, first, process(8, *(step(n) for n in range(2)), rank=1, node=1)])
    verdict = conclude([judged(gradient_sync=2)], worlds=found)
    assert (verdict.world_size, verdict.nnodes, verdict.steps) == (2, 2, 3)
    assert verdict.ranks == (
        RankResult(rank=0, host="h", pid=7),
        RankResult(rank=1, exit_code=0, host="h", pid=8),
    )
    assert verdict.folder == str(Path("/work"))


def test_what_was_passed_over_is_told():
    """Sampled steps, evidence that could not be written, and ranks without any, are notes."""
    sampled = [process(7 + r, step(0), step(1, whole=False), step(9, looked=False), rank=r, size=3) for r in (0, 1)]
    sampled[0].gap, sampled[1].torn = "there was no room for more", True
    notes = conclude([judged(gradient_sync=1)], worlds=worlds(sampled), notes=["Said before."]).notes
    assert notes == (
        "The evidence of rank 2 is missing: no process has recorded that it joined the group under that number. What "
        "compares ranks was not checked.",
        "The evidence of rank 0 stopped early: there was no room for more. What is said here covers the run up to "
        "there.",
        "The evidence of rank 1 ends in the middle of a record; all before it counts.",
        "Said before.",
        "Looked at on every rank: 1 of 10 optimizer steps in full, 1 more by a part of every tensor, so that the "
        "training keeps its speed.",
    )


def test_what_was_not_checked_says_that_the_evidence_stopped():
    """A reason that is true of a part of the run says so; nothing is put down to the program."""
    stopped = [process(7 + r, step(0), rank=r) for r in (0, 1)]
    stopped[1].gap = "there was no room for more"
    checks = conclude([judged(gradient_sync=1)], worlds=worlds(stopped)).checks
    assert checks["gradient-sync"].status == "held"
    assert checks["process-hygiene"].skipped_because == (
        "the evidence of rank 1 stopped early; as far as it goes, nothing was seen that it could judge"
    )
    assert "evidence" not in str(checks["resume-equivalence"].skipped_because)


def test_the_output_is_pointed_at_and_nothing_is_claimed_of_what_was_not_seen():
    """That no process has raised is known where all evidence is there."""
    whole = process(7)
    claim = "no process that had imported torch has raised"
    assert claim in conclude([], processes=[whole], failed=True).findings[0].advice
    whole.damaged = 9
    assert claim not in conclude([], processes=[whole], failed=True).findings[0].advice


# --- what is ours


LOOK, SEEN = [(ev.Looking, {"over": over}) for over in (False, True)]


@pytest.mark.parametrize(
    ("records", "number", "ours"),
    [
        ([LOOK, SEEN, LOOK], 11, True),
        ([LOOK, SEEN], 11, False),
        ([LOOK], 9, False),
        ([], 11, False),
        ([(ev.Raised, {**raised()[1], "text": "KeyError", "ours": True})], None, True),
        ([raised()], None, False),
    ],
    ids=["in a look", "behind a look", "killed in a look", "no look", "raised by us", "raised by the program"],
)
def test_what_we_have_brought_down_is_not_put_down_to_the_program(records, number, ours):
    """Exit 4 and how it came; what else was found stays, and a crash anywhere else is the program's."""
    processes = [process(1, child(7, None if number else 1, number), child(8, 0)), process(7, *records, rank=0)]
    processes.append(process(8, rank=1))
    found = worlds(processes)
    told = brought_down(processes)
    assert bool(told) == ours
    failure = finding("rank-failure")
    verdict = conclude([judged(failure, gradient_sync=1)], worlds=found, processes=processes, failed=True, ours=told)
    assert (verdict.exit_code(), verdict.findings) == ((Exit.INTERNAL, ()) if ours else (Exit.BROKEN, (failure,)))
    assert verdict.internal == tuple(told)
    both = conclude([judged(failure, finding("gradient-sync"))], worlds=found, processes=processes, ours=told)
    assert both.exit_code() == Exit.BROKEN


def test_a_launcher_that_was_killed_is_named():
    """Nothing is claimed of the program's output."""
    (found,) = conclude([], processes=[process(7)], failed=True, killed_by=9).findings
    assert (found.subject, "SIGKILL" in found.found) == ("the launcher", True)
    (found,) = conclude([], processes=[process(7, raised())], failed=True, killed_by=9).findings
    assert found.subject == "ValueError"


def test_processes_that_cannot_be_seen_are_a_note():
    """Where /proc is hidden, nobody knows what a rank leaves behind."""
    blind = [process(7 + r, (ev.Lingering, {"threads": [], "children": [], "blind": r == 1}), rank=r) for r in (0, 1)]
    assert conclude([judged()], worlds=worlds(blind)).notes == (
        "Which processes rank 1 left behind could not be seen: /proc is hidden there.",
    )


def test_ranks_that_say_nothing_are_named():
    """The agent knows whom it has started; of a world, who is missing is reported with it."""
    agent = process(1, *((ev.Launched, {"pid": 7 + r, "rank": r}) for r in (0, 1)))
    (note,) = conclude([], processes=[agent]).notes
    assert note.startswith("Ranks 0 and 1 have left no evidence: torch was not imported there")
    spoke = process(7, rank=0)
    notes = conclude([judged()], worlds=worlds([agent, spoke]), processes=[agent, spoke]).notes
    assert notes == (
        "The evidence of rank 1 is missing: no process has recorded that it joined the group under that number. What "
        "compares ranks was not checked.",
    )


def test_what_a_missing_rank_may_have_done_is_not_held():
    """Each check says whose evidence is missing; what was found of the others is so all the same."""
    (world,) = worlds([process(7 + r, step(0), rank=r, size=3) for r in (0, 2)])
    verdict = conclude([judge_world(world)], worlds=[world])
    assert (verdict.verdict, verdict.exit_code(), verdict.missing) == ("nothing-checked", 3, (1,))
    reasons = {result.skipped_because for check, result in verdict.checks.items() if has_part(check, "run")}
    assert reasons == {"the evidence of rank 1 is missing"}
    assert verdict.notes[0].startswith("The evidence of rank 1 is missing")
    (apart,) = worlds([process(7, raised(), rank=0, size=3), process(8, step(0), rank=2, size=3)])
    broken = conclude([judge_world(apart)], worlds=[apart])
    assert [f.check for f in broken.findings] == ["rank-failure"]
    assert broken.checks["gradient-sync"].skipped_because == "the evidence of rank 1 is missing"


def test_the_versions_need_no_import():
    """They are those of the installed packages."""
    versions = installed()
    assert list(versions) == ["ddpcheck", "torch", "python"]
    assert all(versions.values())
