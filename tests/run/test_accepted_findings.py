"""What is accepted, of a run that goes on and of its verdict; and a baseline that cannot be written."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from ddpcheck.acceptance.baseline import Baseline
from ddpcheck.acceptance.rules import Rules
from ddpcheck.judging.world import Moment
from ddpcheck.run import accepted_findings
from ddpcheck.run.accepted_findings import WhileRunning, without_accepted
from ddpcheck.run.live_run import LiveRun
from ddpcheck.run.options import Options
from ddpcheck.verdict.interim import Interim
from tests.acceptance.written_findings import CODE, WARNING, entry, finding, ignore, verdict

OPTIONS = Options(torchrun=None, launched=True, script="train.py", arguments=())
COMMENT = "  # ddpcheck: ignore[gradient-sync] it is meant"


def known(folder, *, comment=""):
    return Interim(folder=str(folder), lines={"train.py:5": CODE[5] + comment})


def counts(one, rules, told):
    return WhileRunning(rules).counts(one, told)


def test_what_is_shown_while_a_run_goes_on(tmp_path):
    """Not what a comment, an entry or the baseline accepts; other findings are."""
    rules = Rules(base=str(tmp_path), ignores=(ignore(),))
    baseline = Rules(baseline=Baseline(path=str(tmp_path / "b.json"), entries=(entry(),)))
    assert counts(finding(), Rules(), known(tmp_path))
    assert not counts(finding(), Rules(), known(tmp_path, comment=COMMENT))
    assert not counts(finding(), rules, known(tmp_path))
    assert not counts(finding(), baseline, known(tmp_path))
    for one in (finding("parameter-sync"), finding("no-hang"), finding(line=14, file="other.py")):
        assert counts(one, rules, known(tmp_path))


def test_lines_that_get_known_later(tmp_path):
    """Of findings that come one after the other; the file is read once, as it was at the first."""
    (tmp_path / "train.py").write_text(f"step(){COMMENT}\nstep(){COMMENT}\n")
    accepting = WhileRunning(Rules())
    told = Interim(folder=str(tmp_path), lines={"train.py:1": f"step(){COMMENT}"})
    assert not accepting.counts(finding(line=1), told)
    (tmp_path / "train.py").write_text("")
    assert not accepting.counts(finding(line=2), replace(told, lines={"train.py:2": f"step(){COMMENT}"}))


def test_a_line_that_is_not_known_yet_is_waited_for(tmp_path):
    """Where an entry may accept it; else there is nothing to wait for."""
    rules = Rules(base=str(tmp_path), ignores=(ignore(),))
    assert not counts(finding(line=None), rules, known(tmp_path))
    assert counts(finding(line=None), Rules(), known(tmp_path))
    assert counts(finding("parameter-sync", line=None), rules, known(tmp_path))


@pytest.mark.parametrize(
    ("rules", "shown", "ends"),
    [
        (Rules(), ["error", "warning"], True),
        (Rules(ignores=(ignore(file="*"),)), ["warning"], False),
        (Rules(severities={"gradient-sync": "warning"}), ["warning", "warning"], False),
        (Rules(ignores=(ignore(file="*"),), severities={"checkpoint-atomic-save": "error"}), ["error"], True),
    ],
)
def test_what_ends_a_run_under_fail_fast(monkeypatch, capsys, rules, shown, ends):
    """An error by the project's severities that nobody accepts."""
    live = LiveRun(replace(OPTIONS, rules=rules, fail_fast=True, status="off"))
    live.judging.last = Interim(findings=(finding(), WARNING), lines={"train.py:5": CODE[5]})
    found = [one for one in live.judging.last.findings if live.judging._counts(one)]
    monkeypatch.setattr(live.judging, "look", lambda processes, now: found)
    fatal = live.look({}, Moment(at=1.0))
    assert (fatal is not None) == ends
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ddpcheck, ")]
    assert [line.split("  ")[-3] for line in told] == shown


def test_a_baseline_is_written_and_counts(tmp_path):
    """In the same run; the note says where it is."""
    path = tmp_path / "known.json"
    options = replace(OPTIONS, rules=Rules(baseline=Baseline(path=str(path))), write_baseline=True)
    after = without_accepted(options, verdict(tmp_path, finding()), [], False)
    assert (after.verdict, len(after.accepted)) == ("held", 1)
    assert after.notes == (f"{path} was written, with 1 entry; each may be given a reason there.",)
    assert len(json.loads(path.read_text())["findings"]) == 1


def test_a_baseline_that_cannot_be_written_accepts_nothing(tmp_path):
    """The folder has gone since: it is among what was lost, and the findings count."""
    options = replace(
        OPTIONS, rules=Rules(baseline=Baseline(path=str(tmp_path / "gone" / "b.json"))), write_baseline=True
    )
    after = without_accepted(options, verdict(tmp_path, finding()), [], False)
    assert (after.verdict, after.accepted) == ("violated", ())
    assert after.lost == (f"cannot write {tmp_path}/gone/b.json: no such file or directory",)


def test_a_fault_of_ours_accepts_nothing(tmp_path, monkeypatch):
    """It is said to be ours, and every finding counts."""

    def fails(*given):
        raise RuntimeError("no rules today")

    monkeypatch.setattr(accepted_findings, "with_accepted", fails)
    after = without_accepted(OPTIONS, verdict(tmp_path, finding()), [], False)
    assert (after.verdict, after.exit_code()) == ("violated", 1)
    assert "no rules today" in after.internal[0]
    assert without_accepted(OPTIONS, verdict(tmp_path), [], False).exit_code() == 4


def test_a_run_that_was_cut_short_knows_of_nothing_that_it_is_gone(tmp_path):
    """Under --fail-fast the lines behind the first error were not met."""
    options = replace(OPTIONS, rules=Rules(ignores=(ignore(file="*"),)))
    assert without_accepted(options, verdict(tmp_path), [], True).notes == ()
