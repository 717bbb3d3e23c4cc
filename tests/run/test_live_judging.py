"""Judging while a run goes on: nothing is told twice or too early, and what is let go of changes no verdict."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ddpcheck.judging import long_runs
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Moment
from ddpcheck.run import live_judging
from ddpcheck.run.conclusion import Run, verdict_of
from ddpcheck.run.live_judging import LiveJudging
from ddpcheck.verdict.settled import Settled
from tests.simulated_evidence import Training, write
from tests.soak.long_run import Followed, follow

RIGHT = Training(ranks=3, steps=240, epoch=40)
WRONG = RIGHT._replace(diverges=(1, 130))
LITTLE = 500
"""Records that are held before the judged ones are let go: a fifth of what these trainings leave."""


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """What always stays is little, too, so that short trainings let go of most."""
    monkeypatch.setattr(long_runs, "FIRST", 8)
    monkeypatch.setattr(long_runs, "LEAST", 8)


@pytest.fixture(autouse=True)
def _ended():
    """No judgement that a test began goes on into the next one."""
    yield
    for thread in threading.enumerate():
        if thread.name == "ddpcheck-judging":
            thread.join()


def statuses(verdict):
    return {check: (result.status, result.checked) for check, result in verdict.checks.items()}


@pytest.mark.parametrize("training", [RIGHT, WRONG], ids=["right", "wrong"])
def test_what_is_let_go_changes_no_verdict(training):
    """Every status and count is the same, and so is every finding."""
    _, whole = follow(training, together=40)
    run, verdict = follow(training, held=LITTLE, together=40)
    held = sum(len(p.records) for p in run.folder.processes.values())
    assert held < sum(p.taken for p in run.folder.processes.values()) / 2, "it has let go of some"
    assert statuses(verdict) == statuses(whole)
    assert verdict.findings == whole.findings
    assert (verdict.steps, verdict.notes) == (whole.steps, whole.notes)


def test_memory_stays_where_it_is():
    """Five times the steps are held in the same number of records."""
    most = {}
    for steps in (100, 500):
        held = []
        follow(
            Training(ranks=2, steps=steps, epoch=50),
            held=200,
            together=50,
            report=lambda made, run, held=held: held.append(
                sum(len(p.records) for p in run.folder.processes.values()) - _lasting(run)
            ),
        )
        most[steps] = max(held)
    assert most[500] < 1.3 * most[100]


def _lasting(run):
    """Records that stay whatever the length: those of epochs and files."""
    return sum(not record.passing for p in run.folder.processes.values() for record in p.records)


def test_an_error_is_told_once_and_soon():
    run, verdict = follow(WRONG, held=LITTLE, together=40)
    told = [one for one in run.told if one[1] == "gradient-sync"]
    assert told == [(160, "gradient-sync", 130)], "at the first look after the step"
    (finding,) = [f for f in verdict.findings if f.check == "gradient-sync"]
    assert (finding.step, finding.count) == (130, 110)


def test_nothing_is_told_of_a_training_that_is_right():
    run, _ = follow(RIGHT._replace(epoch=1000), held=LITTLE, together=40)
    assert run.told == []


def test_what_is_accepted_is_not_told(tmp_path):
    run = Followed(tmp_path, WRONG, LITTLE)
    run.judging = LiveJudging(counts=lambda finding: finding.check != "gradient-sync", held=LITTLE)
    for made in range(40, 241, 40):
        run.go(40)
        run.look(made)
    assert "gradient-sync" not in {check for _, check, _ in run.told}


def test_checks_that_were_left_out_are_not_told(tmp_path):
    run = Followed(tmp_path, WRONG, LITTLE)
    run.judging = LiveJudging(chosen={"batch-count"}, held=LITTLE)
    run.go(240)
    run.look(240)
    assert run.told == []


def test_a_judgement_that_fails_is_noted_and_lets_go_of_nothing(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("a fault of ours")

    run = Followed(tmp_path, WRONG, LITTLE)
    run.go(150)
    with monkeypatch.context() as patched:
        patched.setattr(live_judging, "interim", fails)
        run.look(150)
    assert [text.strip().endswith("a fault of ours") for text in run.judging.failures] == [True]
    assert all(p.taken == len(p.records) for p in run.folder.processes.values())
    run.go(90)
    run.look(240)
    assert "gradient-sync" in {check for _, check, _ in run.told}, "the next one is made"


def test_the_watching_thread_waits_for_no_judgement(tmp_path, monkeypatch):
    """A judgement that takes for ever takes nothing but its own time."""
    run = Followed(tmp_path, RIGHT)
    run.go(100)
    run.folder.read()
    go_on = threading.Event()
    monkeypatch.setattr(live_judging, "interim", lambda *args: go_on.wait())
    now = Moment(at=1e6, host="host0")
    for _ in range(3):
        assert run.judging.look(run.folder.processes, now) == []
    assert sum(t.name == "ddpcheck-judging" for t in threading.enumerate()) == 1
    go_on.set()


def test_judging_takes_its_share_and_no_more(tmp_path, monkeypatch):
    """After one that took a second of processor time, the next is due when that is the share it may have."""
    clock = SimpleNamespace(thread_time=iter([0.0, 1.0]).__next__, monotonic=lambda: 100.0)
    monkeypatch.setattr(live_judging, "time", clock)
    monkeypatch.setattr(live_judging, "interim", lambda *args: None)
    judging = LiveJudging()
    thread = threading.Thread(target=judging._judge, args=([], Moment(at=0.0)))  # it stands back, this one does not
    thread.start()
    thread.join()
    assert judging._due == pytest.approx(100.0 + 1.0 / live_judging.SHARE)


def test_an_empty_folder_is_nothing_to_judge(tmp_path):
    judging = LiveJudging()
    assert judging.look(Folder(tmp_path).processes, Moment(at=1.0)) == []
    assert judging._thread is None


def test_where_nothing_may_go_it_is_not_judged_without_end(tmp_path):
    """A rank that has left no evidence: nothing is compared with it, and nothing can be settled."""
    run = Followed(tmp_path, Training(ranks=2, steps=200, epoch=50, only=(0,)), held=100)
    run.go(200)
    run.look(200)
    assert all(p.taken == len(p.records) for p in run.folder.processes.values())
    assert run.judging.look(run.folder.processes, Moment(at=0.0, host="host0")) == []
    assert run.judging._thread is None


def test_evidence_of_a_long_run_is_read_in_pieces(tmp_path):
    """The verdict is the same, and never was all of it held."""
    write(tmp_path, WRONG)
    whole, pieces = Folder(tmp_path), Folder(tmp_path)
    whole.read()
    judging = LiveJudging(held=LITTLE)
    most = 0
    while pieces.read(4096):
        latest = max((p.records[-1].at for p in pieces.processes.values() if p.records), default=0.0)
        judging.settle(pieces.processes, Moment(at=latest, host="host0"))
        most = max(most, sum(len(p.records) for p in pieces.processes.values()))
    assert most < 0.7 * sum(p.taken for p in pieces.processes.values())
    run = Run(pid=0, exit_code=0, signal=None)
    verdicts = [
        verdict_of(run, list(folder.processes.values()), settled, None)
        for folder, settled in ((whole, Settled()), (pieces, judging.settled))
    ]
    assert verdicts[0] == verdicts[1]
