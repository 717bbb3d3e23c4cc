"""The report of a run for a person: everything is said, in any width, encoding and terminal."""

from __future__ import annotations

import io
import re

import pytest
from msgspec.structs import replace

from ddpcheck.checks.registry import every_check, has_part
from ddpcheck.report import explain, source_lines, terminal_report
from ddpcheck.report.console import plain
from ddpcheck.report.page.page import html
from ddpcheck.verdict.warnings_as_errors import warnings_as_errors
from ddpcheck.vocabulary.model import CallSite
from tests.report.verdicts import ACCEPTED, AT_RISK, ERROR, HELD, HUNG, NOTHING, SCRIPT, VIOLATED, WARNING, site


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def shown(verdict, encoding="utf-8", **more):
    """The report as a stream of this encoding, one that raises for what it lacks, receives it."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    terminal_report.show(verdict, stream, **more)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path)


# --- what is said


def test_a_broken_run_reads_from_the_top_down(script):
    """Verdict, findings with code and fix, checks, notes and files, in this order, each in full."""
    text = shown(replace(VIOLATED, folder=script), written=["report.json"])
    assert text == REPORT


def test_all_of_it_is_there_on_demand(script):
    """Code around warnings, too; a table of the checks, with those that follow from another; and reasons."""
    text = shown(replace(VIOLATED, folder=script, notes=()), verbose=True)
    assert text[text.index("\nchecks\n") :] == CHECKS


REPORT = """
ddpcheck ───────────────────────────────────────────────────────────────────────
VIOLATED  train.py --epochs 3, 2 ranks: 1 error and 1 warning in 36 optimizer
steps, 8.1 s.

1. error  reducer-coverage  the wrapper of Net
   train.py:5 in train (all ranks, first at step 0, 12 times)
     3 | def train(model, batches):
     4 |     for x, y in batches:
   > 5 |         loss = loss_of(model.module(x), y)
     6 |         loss.backward()
   expected  a forward through the wrapper before every step
   found     none before 12 of 12 steps
   cause     likely: the loss came from `.module`
   fix       Call model(x), and not model.module(x).
   see also  train.py:6 in train (ranks 0 and 1): loss.backward()
   breaks    gradient-sync, parameter-sync as well, as a consequence

2. warning  checkpoint-atomic-save  /checkpoints/last.pt (rank 0)
   expected  a save to leave the last checkpoint whole
   found     torch.save onto a path that held one
   fix       Save beside it, then os.replace().

held         initial-broadcast 1 of 36 windows
not checked  3 checks; --verbose gives the reasons
note         Of 36 optimizer steps, 12 were looked at in full.
written to   report.json
"""

CHECKS = """
checks
  check                    status             compared
  ─────────────────────────────────────────────────────────────────────
  reducer-coverage         violated   12 of 36 windows   finding 1
  gradient-sync            violated   12 of 36 windows   follows from 1
  parameter-sync           violated   12 of 36 windows   follows from 1
  checkpoint-atomic-save   at risk     3 of 36 windows   finding 2
  initial-broadcast        held        1 of 36 windows

not checked
  batch-count, no-hang, rng-independence
      there was nothing to judge

"""


def closing(verdict, strict=False, code=1, terminal=False):
    """The end of the report."""
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    terminal_report.close(verdict, stream, code, strict)
    return re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())


def test_the_end_has_a_line_for_each_finding_and_the_verdict():
    rule = "more: ddpcheck explain reducer-coverage "
    assert closing(VIOLATED) == (
        f"{rule}{'─' * (80 - len(rule))}\n"
        "train.py:5  error  reducer-coverage  the wrapper of Net\n"
        "warning  checkpoint-atomic-save  /checkpoints/last.pt\n"
        "VIOLATED  1 error and 1 warning, exit code 1\n"
    )


@pytest.mark.parametrize(
    ("verdict", "strict", "code", "line"),
    [
        (HELD, False, 0, "HELD  1 check held, 3 not checked, exit code 0"),
        (HELD, False, 4, "HELD  1 check held, 3 not checked; not all files were written, exit code 4"),
        (
            replace(HELD, internal=("KeyError",)),
            False,
            4,
            "HELD  1 check held, 3 not checked; ddpcheck itself failed, exit code 4",
        ),
        (AT_RISK, False, 0, "HELD  1 check held, 1 at risk, 3 not checked, with 1 warning, exit code 0"),
        (warnings_as_errors(AT_RISK), True, 1, "VIOLATED  1 warning (an error under --strict), exit code 1"),
        (HUNG, False, 1, "HUNG  1 error, exit code 1"),
        (NOTHING, False, 3, "NOTHING CHECKED  no finding, exit code 3"),
    ],
)
def test_the_last_line_is_the_verdict(verdict, strict, code, line):
    assert closing(verdict, strict, code).splitlines()[-1] == line


def test_the_end_is_in_whole_lines(monkeypatch):
    """Whatever the width: each finding is one line, with no line end in it, and the verdict is the last."""
    long = replace(WARNING, subject="a\n" + "w" * 200, where=site(5, file="train.py"))
    verdict = replace(VIOLATED, findings=(replace(ERROR, check="reducer-coverage" * 3), long))
    for columns in ("20", "30", "80", "120"):
        for terminal in (False, True):
            monkeypatch.setenv("COLUMNS", columns)
            lines = closing(verdict, terminal=terminal).splitlines()
            assert lines[0].startswith(f"more: ddpcheck explain {'reducer-coverage' * 3}")
            assert lines[2:] == [
                f"train.py:5  warning  checkpoint-atomic-save  a {'w' * 200}",
                "VIOLATED  1 error and 1 warning, exit code 1",
            ]


def test_callers_that_differ_are_shown_whole():
    """Of a line that ranks came to in several ways, no caller is left out: the differing one may be any."""

    def chain(*lines):
        found = CallSite(file="train.py", line=lines[0], function="<module>")
        for line in lines[1:]:
            found = CallSite(file="train.py", line=line, function=f"f{line}", caller=found)
        return found

    for first, other in (((23, 6), (25, 6)), ((1, 2, 31, 4, 5, 6, 7, 8), (1, 2, 32, 4, 5, 6, 7, 8))):
        where, again = chain(*first), chain(*other)
        found = replace(ERROR, where=where, proof=((0, where), (1, again)))
        text = " ".join(shown(replace(VIOLATED, findings=(found,))).split())
        for lines in (first, other):
            way = " → ".join([f"<module>:{lines[0]}", *(f"f{line}:{line}" for line in lines[1:-1]), f"f{lines[-1]}"])
            assert text.count(f"train.py:{lines[-1]} in {way}") == 1
    text = shown(replace(VIOLATED, findings=(replace(ERROR, where=chain(23, 6), proof=()),)))
    assert "train.py:6 in f6 (" in text


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("word", ["failed", "hung", "interrupted", "nothing-checked", "held"])
def test_of_a_training_that_never_began_nothing_is_said_to_be_unchecked(word, steps):
    """That is so of everything."""
    text = shown(replace(HELD, verdict=word, steps=steps))
    assert ("not checked" in text) == (steps > 0 or word in ("nothing-checked", "held"))


def test_where_nothing_was_checked_the_commonest_reason_stands():
    """That is what a reader asks for first."""
    checks = {f"check-{n}": replace(NOTHING.checks["no-hang"], skipped_because="no group") for n in range(2)}
    text = " ".join(shown(replace(NOTHING, checks=checks | NOTHING.checks)).split())
    assert "5 checks; --verbose gives the reasons. 3 of them: there was nothing to judge" in text


def test_no_unit_is_wrapped_away_from_its_number(monkeypatch):
    """In any width, a number and what it counts stand in one line."""
    checks = {f"check-{n}": replace(HELD.checks["initial-broadcast"], checked=n, of=1000 * n) for n in range(1, 30)}
    note = "rank 12 and ranks 13 and 14 waited for 12 s in call 3 of step 4 at line 5, of 16 calls. " * 4
    for columns in range(24, 121):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = shown(replace(HELD, checks=checks, notes=(note,)))
        for n in range(1, 30):
            assert f" {n} of {n * 1000:,} windows" in text or columns < 38, columns
        for words in ("rank 12", "ranks 13", "12 s", "step 4", "line 5", "16 calls"):
            assert text.count(words) == 4 or columns < 26, (columns, words)


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (HELD, "HELD train.py --epochs 3, 2 ranks: 1 check held in 36 optimizer steps, 3 not checked, 8.1 s."),
        (
            AT_RISK,
            "HELD train.py --epochs 3, 2 ranks: 1 check held in 36 optimizer steps, 1 at risk, 3 not checked, with "
            "1 warning, 8.1 s.",
        ),
        (
            HUNG,
            "HUNG train.py --epochs 3, 4 ranks: hung after 36 optimizer steps: 1 error, 8.1 s.",
        ),
        (
            replace(VIOLATED, verdict="failed", steps=1, nnodes=2, findings=(ERROR,)),
            "FAILED train.py --epochs 3, 2 ranks on 2 nodes: failed after 1 optimizer step: 1 error, 8.1 s.",
        ),
        (
            NOTHING,
            "NOTHING CHECKED train.py --epochs 3, 2 ranks: nothing was seen that a check could judge, 8.1 s.",
        ),
        (
            replace(NOTHING, world_size=1),
            "NOTHING CHECKED train.py --epochs 3, 1 rank: one rank has nothing to be compared with, 8.1 s.",
        ),
        (
            replace(NOTHING, part="the evidence of rank 1 stopped early"),
            "NOTHING CHECKED train.py --epochs 3, 2 ranks: the evidence of rank 1 stopped early, with nothing in it "
            "that a check could look at, 8.1 s.",
        ),
        (
            replace(HELD, part="the evidence of rank 1 is damaged"),
            "HELD train.py --epochs 3, 2 ranks: 1 check held in 36 optimizer steps, 3 not checked, in a part of the "
            "run (the evidence of rank 1 is damaged), 8.1 s.",
        ),
        (
            replace(NOTHING, command="", world_size=0),
            "NOTHING CHECKED the program: nothing was seen that a check could judge, 8.1 s.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(verdict, line):
    """The first sentence says what was run, in how many ranks, for how long, and what came of it."""
    words = " ".join(shown(verdict).split())
    assert line in words


def test_ranks_whose_evidence_is_missing_are_named_first():
    """The first line says so, whatever the verdict is."""
    words = " ".join(shown(replace(HELD, missing=(1, 3))).split())
    assert "8.1 s. The evidence of ranks 1 and 3 is missing. held" in words
    words = " ".join(shown(replace(NOTHING, missing=(1,))).split())
    assert "2 ranks: nothing could be checked, 8.1 s. The evidence of rank 1 is missing." in words


def test_warnings_count_as_errors_if_asked():
    """With --strict the first sentence says why a run that holds is an error all the same."""
    words = " ".join(shown(warnings_as_errors(AT_RISK), strict=True).split())
    assert " VIOLATED train.py" in words
    assert ": 1 warning (an error under --strict) in " in words


def test_a_hang_shows_where_each_rank_stands_and_where_they_part():
    """Ranks that stand alike are told once, with the call they wait in and the one before."""
    text = shown(HUNG)
    start = text.index("where the ranks were last seen")
    assert text[start : text.index("\nnot checked")] == HANG


HANG = """where the ranks were last seen
  rank 0         train.py:6 in train
                     loss.backward()
                 waits in   DDP's reduction of gradients, call 10, for 5 s
                 last call  DDP's broadcast of buffers, call 9
  ranks 1 and 2  train.py:8 in train
                 waits in   barrier, call 10, for 6 s
  rank 3         ended with exit code 0
                 last call  barrier, call 9

where their collectives part: call 9
  rank 0         DDP's broadcast of buffers
                 train.py:5 in train
                     line 5
  ranks 1 and 2  all_gather
                 train.py:8 in train
                     line 8
  rank 3         no such call
"""


def test_what_one_table_tells_is_not_told_twice():
    """Ranks that wait where they part are in one table, and its lines are not repeated with the finding."""
    ranks = HUNG.hang.stands[:3]
    calls = {stand.rank: stand.pending for stand in ranks}
    text = shown(replace(HUNG, hang=replace(HUNG.hang, stands=ranks, parted=replace(HUNG.hang.parted, calls=calls))))
    assert "where the ranks were last seen, and where their collectives part\n" in text
    assert text.count("collectives part") == 1
    assert "see also" not in text
    assert text.count("train.py:6") == 1


def test_a_group_of_its_own_is_named():
    """Calls on another group than the default one say which."""
    group = replace(HUNG.hang.parted, group="0,2#1", calls={0: None, 2: None})
    text = shown(replace(HUNG, hang=replace(HUNG.hang, parted=group)))
    assert "where their collectives part: call 9 on the group of ranks 0,2\n  ranks 0 and 2  no such call" in text


def test_a_finding_about_a_rank_names_it_once():
    """Where the subject is the rank, the headline does not repeat it."""
    text = shown(replace(VIOLATED, findings=(replace(WARNING, subject="rank 1", ranks=(1,)),)))
    assert "checkpoint-atomic-save  rank 1\n" in text


def test_what_went_wrong_in_ddpcheck_is_told_apart():
    """A defect of ddpcheck is not put at the program's door."""
    text = shown(replace(HELD, internal=("a judge raised KeyError",)))
    assert "ddpcheck itself failed: a judge raised KeyError\nThis is a defect of ddpcheck, not of the program" in text


# --- any terminal


@pytest.mark.parametrize("columns", ["0", "5", "30", "80", "120", "300"])
@pytest.mark.parametrize("verdict", [VIOLATED, HUNG, NOTHING])
def test_nothing_is_cut_off(monkeypatch, columns, verdict):
    """In any width a long path is there whole, over several lines, and no line is longer than 120 columns."""
    monkeypatch.setenv("COLUMNS", columns)
    path = "/home/someone/" + "/".join(f"a-folder-with-a-long-name-{n}" for n in range(9)) + "/last.pt"
    text = shown(replace(verdict, findings=(replace(WARNING, subject=path, where=site(file=path)),)))
    letters = re.sub(r"\s+", "", text)
    assert letters.count(path) == 2
    assert max(len(line) for line in text.split("\n")) <= min(int(columns) or 80, 120)
    if verdict is not NOTHING and columns != "5":
        assert "…" not in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_encoding_that_lacks_a_character_gets_an_escape(encoding, script):
    """No report fails for a name that the terminal cannot show."""
    finding = replace(ERROR, subject="Größe der Zahl π \udce9", cause="日本語")
    verdict = replace(VIOLATED, folder=script, findings=(finding,), notes=("naïve π",))
    text = shown(verdict, encoding=encoding, verbose=True)
    assert r"\u03c0 \xdce9" in text
    assert r"\u65e5\u672c\u8a9e" in text
    assert "─" not in text
    assert "2500" not in text
    assert re.search(r"\n  check +status +compared\n  -{60,}\n", text)


def test_colour_is_for_terminals(monkeypatch):
    """A file gets no colour; a terminal does, unless NO_COLOR forbids it."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    def on_terminal():
        stream = Terminal()
        terminal_report.show(VIOLATED, stream)
        return stream.getvalue()

    assert "\x1b" not in shown(VIOLATED)
    assert "\x1b[1;31mVIOLATED\x1b[0m" in on_terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in on_terminal()


def test_texts_of_the_program_do_not_command_the_terminal():
    """Escapes, brackets and emoji names in a user's text are shown as they are."""
    finding = replace(WARNING, subject="\x1b[31m[bold]layer[0][/bold] :smile:\x07\u202e", found="a\r\nb\tc")
    text = shown(replace(AT_RISK, findings=(finding,)))
    assert r"\x1b[31m[bold]layer[0][/bold] :smile:\x07\x202e" in " ".join(text.split())
    assert "\x1b" not in text
    assert "found     a\n             b" in text


def test_signs_in_the_programs_own_text_stay(script):
    """Only where the encoding lacks a sign of the report's own, another one stands for it."""
    where = CallSite(file="train.py", line=5, function="train", caller=site(8))
    text = r"print('\u2192 \u2026')"
    verdict = replace(VIOLATED, findings=(replace(ERROR, where=where),), lines={"train.py:5": text})
    assert text in shown(verdict)
    assert "train:8 → train" in shown(verdict)
    assert text in shown(verdict, encoding="ascii")
    assert "train:8 -> train" in shown(verdict, encoding="ascii")


def test_plain_keeps_what_can_be_shown():
    """Letters of any script and line ends stay."""
    assert plain("Zeile 1\nπ 日本") == "Zeile 1\nπ 日本"


# --- code


def test_an_excerpt_is_what_ran(script):
    """A file that has changed since is not quoted; the line is, as it was recorded."""
    sources = source_lines.Sources(script, {"train.py:5": "loss = something_else(x)"})
    assert sources.excerpt(site()) == [(5, "loss = something_else(x)", True)]
    assert sources.line(site()) == "loss = something_else(x)"


@pytest.mark.parametrize("recorded", [{}, {"train.py:2": "x = " + "1" * 4000}])
def test_of_a_very_long_line_the_beginning_is_shown(tmp_path, recorded):
    """A table of weights that is written out, say."""
    (tmp_path / "train.py").write_text("y = 1\nx = " + "1" * 1_000_000 + "\nz = 1\n")
    sources = source_lines.Sources(str(tmp_path), recorded)
    cut = "x = " + "1" * (source_lines.LONGEST - 4) + " …"
    assert [one.text for one in sources.excerpt(site(2))] == ["y = 1", cut, "z = 1"]
    assert sources.line(site(2)) == cut
    (tmp_path / "train.py").write_text("another\nfile\n")
    sources = source_lines.Sources(str(tmp_path), recorded)
    assert [one.text for one in sources.excerpt(site(2))] == ([cut] if recorded else ["another", "file"])


def test_an_excerpt_needs_no_record(script):
    """Without a recorded line the file is quoted, without blank lines at its ends."""
    sources = source_lines.Sources(script, {})
    assert [line.number for line in sources.excerpt(site())] == [3, 4, 5, 6]
    assert [line.number for line in sources.excerpt(site(8))] == [6, 7, 8]
    assert sources.excerpt(site(8))[0].text == "loss.backward()"
    assert sources.line(site(6)) == "loss.backward()"


@pytest.mark.parametrize("file", ["missing.py", "", "\0", "folder"])
def test_a_file_that_cannot_be_read_has_no_excerpt(tmp_path, file):
    """What lies on another host, or is no file, is passed over."""
    (tmp_path / "folder").mkdir()
    sources = source_lines.Sources(str(tmp_path), {})
    assert sources.excerpt(CallSite(file=file, line=3, function="f")) == []
    assert sources.line(CallSite(file=file, line=3, function="f")) == ""


@pytest.mark.parametrize("line", [0, -1, 2, 99])
def test_a_line_that_is_not_there_has_no_excerpt(script, line):
    """Line numbers out of the file, and blank lines, are passed over."""
    assert source_lines.Sources(script, {}).excerpt(site(line)) == []


# --- the texts of the checks


def test_a_check_is_explained_on_a_terminal():
    """Headings, lists and code of an explanation are laid out for the terminal's width."""
    stream = io.StringIO()
    explain.show_check("epoch-reshuffle", stream)
    text = stream.getvalue()
    assert text.startswith(
        "epoch-reshuffle\n\nA shuffled sampler gives another order in another epoch.\n\n"
        "In a test: `ddpcheck.assert_epochs_reshuffled`.\n\nWhy it matters\n"
    )
    assert "\n  - `sampler.set_epoch(epoch)` is not called.\n" in text
    assert "\n    for epoch in range(epochs):\n        sampler.set_epoch(epoch)" in text
    assert "```" not in text
    assert "#" not in text.replace("# before", "")
    assert max(map(len, text.split("\n"))) <= 80


def test_the_list_of_checks_has_them_all():
    """Each id has its sentence; those that one run cannot show are marked."""
    stream = io.StringIO()
    explain.show_checks(stream)
    words = " ".join(stream.getvalue().split())
    assert "gradient-sync on entry to every optimizer step all ranks hold the same gradients" in words
    for check, its in every_check().items():
        assert f" {check}{'' if has_part(check, 'run') else ' *'} {its.holds}" in words


# --- what is accepted


def test_accepted_findings_are_counted_with_their_reasons(script):
    """In the first line and in a section of their own, each in one sentence; and at their checks."""
    text = " ".join(shown(replace(ACCEPTED, folder=script), verbose=True).split())
    assert "HELD, with 2 accepted findings train.py --epochs 3, 2 ranks: 1 check held" in text
    assert (
        "accepted error reducer-coverage, the wrapper of Net, train.py:5 in train: the loss is the teacher's "
        "(comment in train.py:5) accepted warning checkpoint-atomic-save, /checkpoints/last.pt: no reason given yet "
        "(known.json)"
    ) in text
    assert "reducer-coverage at risk 12 of 36 windows 1 accepted" in text


def test_accepted_findings_beside_others(script):
    """They are counted apart, and a check may have both."""
    (_, warning) = ACCEPTED.accepted
    checks = {**VIOLATED.checks, "reducer-coverage": replace(VIOLATED.checks["reducer-coverage"], accepted=2)}
    text = " ".join(shown(replace(VIOLATED, accepted=(warning,), checks=checks, folder=script), verbose=True).split())
    assert "VIOLATED train.py --epochs 3, 2 ranks: 1 error and 1 warning beside 1 accepted one in 36" in text
    assert "reducer-coverage violated 12 of 36 windows finding 1, 2 accepted" in text


def test_the_page_says_what_is_accepted():
    """It does not say that nothing was found."""
    text = html(ACCEPTED)
    assert "HELD, with 2 accepted findings" in text
    assert "No finding that counts." in text
    assert "what was checked held" not in text
    assert "train.py:5 in train: the loss is the teacher&#39;s (comment in train.py:5)" in text
    assert "1 accepted" in text


def test_of_a_very_long_text_beginning_and_end_are_shown():
    """An exception's whole message stands in the JSON and on the page."""
    long = f"rank 0 raised {'w' * 2000}, in blocks.2.0.bias"
    shown = terminal_report._without_middle(long)
    assert shown.startswith("rank 0 raised")
    assert shown.endswith("in blocks.2.0.bias")
    assert " […] " in shown
    assert len(shown) < 750
    assert terminal_report._without_middle("short") == "short"
