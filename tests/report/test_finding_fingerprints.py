"""What makes a finding the same one in the next run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck.report.finding_fingerprints import fingerprints
from ddpcheck.report.repository_paths import Repository
from ddpcheck.report.source_lines import Sources
from tests.report.verdicts import ERROR, SCRIPT, WARNING, site

HERE = Repository("/repository", "/repository/sub")
LINES = {"train.py:5": "loss = loss_of(model.module(x), y)", "train.py:6": "loss.backward()"}


def of(*findings, lines=LINES, here=HERE):
    return fingerprints(findings, here, Sources(here.folder, lines))


def test_a_line_that_has_moved_is_the_same():
    """Numbers of lines, ranks, steps and counts, and all words that may hold them, are of one run."""
    moved = replace(ERROR, where=site(50), ranks=(1,), step=7, count=1, subject="another", found="2 of 12 steps")
    assert of(ERROR) == of(moved, lines={"train.py:50": "  loss = loss_of(model.module(x),  y)"})
    elsewhere = Repository("/checked/out", "/checked/out/sub")
    assert of(ERROR) == of(ERROR, here=elsewhere)
    assert of(ERROR) == of(replace(ERROR, where=site(file="sub/train.py")), here=Repository("/r", "/r"), lines={
        "sub/train.py:5": LINES["train.py:5"]
    })  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        replace(ERROR, check="gradient-sync"),
        replace(ERROR, where=site(6)),
        replace(ERROR, where=site(function="evaluate")),
        replace(ERROR, where=site(file="other.py")),
        replace(ERROR, where=None),
    ],
)
def test_another_finding_has_another(other):
    """The check, the file, the function and the code each make a difference."""
    assert of(ERROR) != of(other)


def test_no_two_of_a_report_are_alike():
    """The second finding on a line is known by its place."""
    found = of(ERROR, ERROR, replace(ERROR, subject="another"), WARNING)
    assert len(set(found)) == 4
    assert found[:2] == of(ERROR, ERROR)


def test_what_has_no_line_is_known_by_what_it_is_about():
    """Without the numbers that one run has by chance, and with those that are in names."""
    nowhere = replace(ERROR, where=None, subject="12 of 1,024 samples")
    assert of(nowhere) == of(replace(nowhere, subject="13 of 2,048 samples"))
    assert of(replace(nowhere, subject="net2.weight")) != of(replace(nowhere, subject="net3.weight"))


def test_the_file_itself_is_read_where_the_run_has_not_kept_the_line(tmp_path):
    """As the excerpts of the report do."""
    (tmp_path / "train.py").write_text(SCRIPT)
    here = Repository(str(tmp_path), str(tmp_path))
    before = of(ERROR, here=here, lines={})
    (tmp_path / "train.py").write_text("# a comment\n" + SCRIPT)
    assert of(replace(ERROR, where=site(6)), here=here, lines={}) == before
