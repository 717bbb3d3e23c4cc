"""The summary of a job, as Markdown."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from ddpcheck.report import job_summary
from ddpcheck.report.repository_paths import Repository
from tests.report.every_ending import ENDINGS, HOSTILE
from tests.report.verdicts import SCRIPT, VIOLATED

BLOB = "https://github.example/owner/name/blob/abc"
HERE = Repository("/repository", "/repository/sub", "train.py")


def rendered(text):
    """The HTML that a reader sees, as CommonMark with tables has it."""
    return MarkdownIt("commonmark").enable("table").render(text)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_texts_are_shown_as_they_are(ending, strict):
    """No text makes markup, a heading, a link, or an element of its own."""
    verdict = ENDINGS[ending]
    html = rendered(job_summary.markdown(verdict, HERE, BLOB, strict))
    assert html.startswith(f"<h2>ddpcheck: {verdict.verdict.replace('-', ' ')}</h2>")
    assert html.count("<h3>") == len(verdict.findings)
    assert html.count("<tr>") == len(verdict.checks) + 1
    assert "<b>" not in html
    assert "<em>" not in html
    assert {link.partition("/blob/")[0] for link in re.findall('href="([^"]*)"', html)} <= {
        "https://github.example/owner/name"
    }
    for internal in verdict.internal:
        assert "ddpcheck itself failed" in html, internal


def test_hostile_text_can_be_read():
    """As it is, but for characters that no page can show."""
    html = rendered(job_summary.markdown(ENDINGS["awkward"], HERE, BLOB))
    shown = r"a]]&gt;b %0A%25 &lt;b&gt;&amp;amp;&lt;/b&gt; "
    assert shown in html
    assert "| [l](2) ::error::x ##[error]y \\x1b[31m\\x00 second\\xdce9 \\x202e end" in html
    assert HOSTILE not in html


def test_a_finding_is_a_section(tmp_path):
    """With its code, links to the lines, and what to do; backquotes of ours are code."""
    (tmp_path / "train.py").write_text(SCRIPT)
    here = Repository(str(tmp_path), str(tmp_path))
    text = job_summary.markdown(replace(VIOLATED, folder=str(tmp_path)), here, BLOB)
    html = rendered(text)
    assert f'<p><a href="{BLOB}/train.py#L5">train.py:5</a> in train</p>' in html
    assert "&gt; 5 |         loss = loss_of(model.module(x), y)" in html
    assert "<strong>cause:</strong> likely: the loss came from <code>.module</code>" in html
    assert f'<strong>see also:</strong> <a href="{BLOB}/train.py#L6">train.py:6</a> in train (ranks 0 and 1)' in html
    assert "<code>gradient-sync</code>, <code>parameter-sync</code> as well" in html
    assert "Of 36 optimizer steps" in html


def test_without_a_commit_there_are_no_links():
    """A service that says nothing of where it shows files."""
    assert job_summary.blob_url({"GITHUB_SERVER_URL": "https://github.example", "GITHUB_SHA": "abc"}) == ""
    assert "href" not in rendered(job_summary.markdown(VIOLATED, HERE, ""))
    names = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "owner/name", "GITHUB_SHA": "abc"}
    assert job_summary.blob_url(names) == BLOB


def test_a_summary_is_added_to(tmp_path):
    """What others have written stays, and GitHub's limit is kept, with less of the findings where it must be."""
    path = tmp_path / "summary.md"
    path.write_text("theirs\n")
    job_summary.append(VIOLATED, path, HERE, BLOB)
    job_summary.append(VIOLATED, path, HERE, BLOB)
    assert path.read_text().startswith("theirs\n")
    assert path.read_text().count("## ddpcheck: violated") == 2

    path.write_text("x" * (job_summary.LARGEST - 3500))
    job_summary.append(ENDINGS["many"], path, HERE, BLOB)
    added = path.read_text().lstrip("x")
    assert "And 24 more findings: see the log of this step." in added
    assert path.stat().st_size <= job_summary.LARGEST

    path.write_text("x" * (job_summary.LARGEST - 10))
    job_summary.append(VIOLATED, path, HERE, BLOB)
    assert path.stat().st_size == job_summary.LARGEST - 10


def test_many_findings_are_cut():
    """Fifty in full; the log has the others."""
    many = replace(VIOLATED, findings=VIOLATED.findings[:1] * 60)
    html = rendered(job_summary.markdown(many, HERE, BLOB))
    assert (html.count("<h3>"), "And 10 more findings" in html) == (50, True)
