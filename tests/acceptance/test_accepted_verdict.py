"""A verdict without what is accepted: what counts, the word, the exit code, each check's status, and the notes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck.acceptance.accepted_verdict import with_accepted
from ddpcheck.acceptance.baseline import Baseline
from ddpcheck.acceptance.line_comments import LineComments
from ddpcheck.acceptance.rules import Rules, accepted
from tests.acceptance.written_findings import CODE, WARNING, entry, finding, ignore, sites, verdict

ACCEPTING = Rules(source="pyproject.toml", ignores=(ignore(),))


NOTHING = "matches nothing in this run; remove it unless another run needs it."


def by_comment(line, check, reason="it is meant"):
    return {**CODE, line: f"{CODE[line]}  # ddpcheck: ignore[{check}] {reason}"}


def test_an_accepted_error_does_not_count(tmp_path):
    """The run held; the finding stands beside the others with its reason, and its check is at risk, not held."""
    before = verdict(tmp_path, finding(also=("parameter-sync",)))
    assert (before.verdict, before.exit_code()) == ("violated", 1)
    after = with_accepted(before, replace(ACCEPTING, base=str(tmp_path)))
    assert (after.verdict, after.exit_code(), after.exit_code(strict=True)) == ("held", 0, 0)
    assert after.findings == ()
    (one,) = after.accepted
    assert (one.by, one.source, one.reason) == ("ignore", "pyproject.toml", "it is meant")
    assert one.finding == finding(also=("parameter-sync",))
    for check in ("gradient-sync", "parameter-sync"):
        assert (after.checks[check].status, after.checks[check].accepted) == ("at-risk", 1)
    assert after.checks["checkpoint-atomic-save"].accepted == 0


def test_without_rules_nothing_changes(tmp_path):
    """Nor by a comment for another check, or an entry for another file."""
    before = verdict(tmp_path, finding(), WARNING)
    assert with_accepted(before, Rules()) == before
    other = Rules(source="pyproject.toml", ignores=(ignore(file="other.py"), ignore("buffer-sync")))
    named = "ignore entry 1 (gradient-sync in other.py)"
    note = f"pyproject.toml: no line and no finding of this run is in the file of {named}."
    assert with_accepted(before, other) == replace(before, notes=(note,))
    commented = replace(before, lines={"train.py:5": by_comment(5, "parameter-sync")[5]})
    assert with_accepted(commented, Rules()).findings == commented.findings


@pytest.mark.parametrize(
    ("findings", "left", "word", "status"),
    [
        ([finding(), finding("parameter-sync")], ["parameter-sync"], "violated", "at-risk"),
        ([finding(), finding(file="other.py")], ["gradient-sync"], "violated", "violated"),
        ([finding(), finding(severity="warning", file="other.py")], ["gradient-sync"], "held", "at-risk"),
        (
            [finding("checkpoint-atomic-save", also=("gradient-sync",))],
            ["checkpoint-atomic-save"],
            "violated",
            "violated",
        ),
    ],
)
def test_others_count_on(tmp_path, findings, left, word, status):
    """What is accepted hides no other finding: of another check, at another line, or the cause of what is accepted."""
    after = with_accepted(verdict(tmp_path, *findings), ACCEPTING)
    assert ([one.check for one in after.findings], after.verdict) == (left, word)
    assert after.checks["gradient-sync"].status == status


@pytest.mark.parametrize(
    ("findings", "word"),
    [
        ([finding("rank-failure")], "failed"),
        ([finding("no-hang")], "hung"),
        # By its consequence: the program came to a stop.
        ([finding("batch-count", links=("stop",)), finding("no-hang", links=("stop",))], "hung"),
        ([finding("device-placement", links=("stop",)), finding("rank-failure", links=("stop",))], "failed"),
    ],
)
def test_a_program_that_came_to_a_stop_has_failed(tmp_path, findings, word):
    """No entry, no comment, no severity and no baseline makes it green; a note says so."""
    first = findings[0]
    entries = Baseline(path="baseline.json", entries=(entry(check=first.check),))
    everything = Rules(
        source="pyproject.toml",
        ignores=(ignore(first.check, "*"), ignore("no-hang", "*"), ignore("rank-failure", "*")),
        severities={first.check: "warning"},
        baseline=entries,
    )
    before = verdict(tmp_path, *findings, lines=by_comment(5, first.check))
    after = with_accepted(before, everything)
    assert (after.verdict, after.exit_code(), after.accepted) == (word, 1, ())
    assert after.findings == before.findings
    assert any("the program came to a stop" in note for note in after.notes)


def test_what_else_was_found_in_a_program_that_failed(tmp_path):
    """It is accepted, and the program has failed all the same."""
    after = with_accepted(verdict(tmp_path, finding("rank-failure", line=14), finding()), ACCEPTING)
    assert (after.verdict, after.exit_code()) == ("failed", 1)
    assert [one.finding.check for one in after.accepted] == ["gradient-sync"]
    assert [one.check for one in after.findings] == ["rank-failure"]


def test_an_interrupted_run(tmp_path):
    """Its errors decide between 1 and the signal's code; those that are accepted do not."""
    before = verdict(tmp_path, finding(), interrupted_by=2)
    assert before.exit_code() == 1
    after = with_accepted(before, ACCEPTING)
    assert (after.verdict, after.exit_code()) == ("interrupted", 130)


def test_a_fault_of_ours_stays_one(tmp_path):
    """Exit 4 is nobody's to accept."""
    assert with_accepted(verdict(tmp_path, finding(), internal=["a judge raised"]), ACCEPTING).exit_code() == 4


def test_nothing_checked_is_not_held(tmp_path):
    """An accepted finding of an ending alone makes no run that was checked."""
    left = finding("process-hygiene", "error")
    after = with_accepted(verdict(tmp_path, left, checked=()), Rules(ignores=(ignore("process-hygiene"),)))
    assert (after.verdict, after.exit_code()) == ("nothing-checked", 3)


# --- severities


def test_a_severity_of_the_project(tmp_path):
    """Raised, it violates; lowered, it does not; and the report says that it is not ddpcheck's own."""
    rules = Rules(source="pyproject.toml", severities={"checkpoint-atomic-save": "error"})
    after = with_accepted(verdict(tmp_path, WARNING), rules)
    assert (after.verdict, after.exit_code(), after.checks["checkpoint-atomic-save"].status) == (
        "violated",
        1,
        "violated",
    )
    assert after.notes[-1] == (
        "pyproject.toml has checkpoint-atomic-save count as error: by itself it would be 1 warning."
    )
    lowered = Rules(source="pyproject.toml", severities={"gradient-sync": "warning"})
    after = with_accepted(verdict(tmp_path, finding(also=("parameter-sync",)), WARNING), lowered)
    assert (after.verdict, after.exit_code(), after.exit_code(strict=True)) == ("held", 0, 1)
    assert {after.checks[check].status for check in ("gradient-sync", "parameter-sync")} == {"at-risk"}
    # One that changes nothing is not worth a word, and errors come first.
    same = Rules(severities={"gradient-sync": "error", "checkpoint-atomic-save": "warning"})
    assert with_accepted(verdict(tmp_path, finding(), WARNING), same) == verdict(tmp_path, finding(), WARNING)
    both = replace(rules, severities={"gradient-sync": "warning", "checkpoint-atomic-save": "error"})
    after = with_accepted(verdict(tmp_path, finding(), WARNING), both)
    assert [(one.check, one.severity) for one in after.findings] == [
        ("checkpoint-atomic-save", "error"),
        ("gradient-sync", "warning"),
    ]


# --- who accepts


def test_the_first_that_accepts_is_named(tmp_path):
    """A comment before an entry, and an entry before the baseline: the nearest to the line."""
    baseline = Baseline(path=str(tmp_path / "baseline.json"), entries=(entry(),))
    both = replace(ACCEPTING, baseline=baseline, base=str(tmp_path))
    comments = LineComments(str(tmp_path), {"train.py:5": by_comment(5, "gradient-sync")[5]})
    without = LineComments(str(tmp_path), {"train.py:5": CODE[5]})
    found = [
        accepted(finding(), both, comments, str(tmp_path)),
        accepted(finding(), both, without, str(tmp_path)),
        accepted(finding(), replace(both, ignores=()), without, str(tmp_path)),
        accepted(finding(), Rules(), without, str(tmp_path)),
    ]
    assert [one.by if one else None for one in found] == ["comment", "ignore", "baseline", None]
    assert found[0].source == "comment in train.py:5"
    assert accepted(finding("rank-failure"), Rules(ignores=(ignore("rank-failure"),)), comments) is None


# --- what matches nothing


def notes(folder, rules, *findings, seen=None, **more):
    return with_accepted(verdict(folder, *findings, **more), rules, sites() if seen is None else seen).notes


def test_an_entry_that_matches_nothing_any_more(tmp_path):
    """It is named, with what to do."""
    rules = replace(ACCEPTING, base=str(tmp_path))
    assert notes(tmp_path, rules) == ("pyproject.toml: ignore entry 1 (gradient-sync in train.py) " + NOTHING,)
    assert notes(tmp_path, rules, finding()) == ()


def test_an_entry_for_written_files(tmp_path):
    """It accepts what is said of them, under the names that the report and the evidence have; else it is named."""
    folder = ignore("checkpoint-single-writer", ".hydra/*")
    rules = Rules(source="pyproject.toml", base=str(tmp_path), ignores=(folder,))
    paths = [tmp_path / "day" / ".hydra" / name for name in ("a.yaml", "b.yaml")]
    found = finding(
        folder.check, "warning", subject="file day/.hydra/a.yaml", links=tuple(f"file {path}" for path in paths)
    )
    after = with_accepted(verdict(tmp_path, found), rules, sites())
    assert (after.findings, [one.finding.subject for one in after.accepted]) == ((), [found.subject])
    assert after.notes == ()
    told = notes(tmp_path, rules, checked=(folder.check,))
    assert told == (
        "pyproject.toml: no line and no finding of this run is in the file of ignore entry 1 "
        "(checkpoint-single-writer in .hydra/*).",
    )


@pytest.mark.parametrize(
    "how",
    [
        {"checked": ("parameter-sync",)},
        {"seen": sites("other.py")},
        {"seen": []},
        {"failed": True},
        {"interrupted_by": 2},
        {"chosen": frozenset({"parameter-sync"})},
    ],
    ids=lambda how: next(iter(how)),
)
def test_what_this_run_cannot_know(tmp_path, how):
    """A check that was not made, a file that was not met, a run without its end: nothing is called gone."""
    rules = replace(ACCEPTING, base=str(tmp_path), baseline=Baseline(path=str(tmp_path / "b.json"), entries=(entry(),)))
    assert [note for note in notes(tmp_path, rules, **how) if "matches nothing" in note] == []


def test_what_follows_from_another_is_not_gone(tmp_path):
    """Its own findings are folded into the other's."""
    rules = Rules(source="pyproject.toml", base=str(tmp_path), ignores=(ignore("parameter-sync"),))
    assert notes(tmp_path, rules, finding(also=("parameter-sync",))) == ()


def test_entries_of_a_baseline_that_match_nothing(tmp_path):
    """In one note; the functions that were not met are left alone."""
    path = str(tmp_path / "b.json")
    entries = (entry(), entry(check="parameter-sync"), entry(function="elsewhere"))
    (note,) = notes(tmp_path, Rules(base=str(tmp_path), baseline=Baseline(path=path, entries=entries)))
    assert note == (
        f"{path}: 2 entries match nothing in this run (gradient-sync in train.py, parameter-sync in train.py); "
        "--write-baseline removes them."
    )


def test_comments_that_match_nothing(tmp_path):
    """On lines that were met, for checks that were made; what is wrong with one is said in any case."""
    lines = {
        1: "optimizer.step()  # ddpcheck: ignore[gradient-sync] was so",
        2: "optimizer.step()  # ddpcheck: ignore[buffer-sync] not checked here",
        3: "other()  # ddpcheck: ignore[gradient-sync] not met",
        4: "optimizer.step()  # ddpcheck: ignore[gradient-sync]",
        5: "optimizer.step()  # ddpcheck: ignore[parameter-sync] is so",
    }
    (tmp_path / "train.py").write_text("\n".join(lines.values()))
    seen = sites(lines={line: text for line, text in lines.items() if line != 3})
    found = finding("parameter-sync", line=5)
    told = notes(tmp_path, Rules(), found, seen=seen, lines={5: lines[5]})
    assert told == (
        "train.py:1: the comment `ignore[gradient-sync]` " + NOTHING,
        "train.py:4: a comment for ddpcheck accepts nothing: it gives no reason; write one behind it.",
    )
    # Of a file that is another by now nothing is said.
    (tmp_path / "train.py").write_text("\n".join(["# new", *lines.values()]))
    assert notes(tmp_path, Rules(), found, seen=seen, lines={5: lines[5]}) == ()
