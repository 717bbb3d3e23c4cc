"""Accepting findings, as docs/accepting.md shows it: the page's own script, settings and baseline, by the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from running import run, script

PAGE = Path(__file__).parents[2] / "docs" / "accepting.md"
COMMENT = "  # ddpcheck: ignore[gradient-sync] rank 0 is evaluated alone, see #12"


def block(kind):
    """The page's only block of this kind."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return found


def accepting(folder, forks, *options, program=None, settings=None):
    (folder / "train.py").write_text(program if program is not None else block("python"))
    if settings is not None:
        (folder / "pyproject.toml").write_text(settings)
    return run(folder, "--nproc-per-node", "2", *options, "train.py", forks=forks)


def test_the_page(tmp_path, forks):
    """A comment and an entry accept the two findings, in the words that the page shows; strict or not, all is green."""
    ran = accepting(tmp_path, forks, "--junit", "report.xml", settings=block("toml"))
    assert ran.code == 0, ran.err
    shown = " ".join(ran.err.split())
    for line in block("text").split("\n\n"):
        assert " ".join(line.split()) in shown
    document = ran.document
    assert (document["verdict"], document["findings"]) == ("held", [])
    assert [(one["check"], one["by"], one["source"]) for one in document["accepted"]] == [
        ("gradient-sync", "comment", "comment in train.py:14"),
        ("checkpoint-atomic-save", "ignore", "pyproject.toml"),
    ]
    assert document["checks"]["gradient-sync"]["status"] == "at-risk"
    assert document["checks"]["gradient-sync"]["accepted"] == 1
    assert "accepted" not in document["checks"]["initial-broadcast"]
    assert "left out" in document["checks"]["rng-independence"]["skipped_because"]
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suite.get("failures") == "0"
    (case,) = [case for case in suite.iter("testcase") if case.get("name") == "gradient-sync"]
    assert "rank 0 is evaluated alone, see #12" in case.findtext("system-out")


def test_a_baseline(tmp_path, forks):
    """What was there before does not count, in moved lines either; the same mistakes with a second model do."""
    known = tmp_path / "known.json"
    ran = accepting(
        tmp_path, forks, "--baseline", known, "--write-baseline", program=block("python").replace(COMMENT, "")
    )
    assert ran.code == 0, ran.err
    entries = json.loads(known.read_text())["findings"]
    assert entries[0] == json.loads(block("json"))["findings"][0]
    assert [one["check"] for one in entries] == ["gradient-sync", "checkpoint-atomic-save"]

    lines = block("python").replace(COMMENT, "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("model ="))
    moved = "\n".join(["# moved", "", *lines[:-1], *lines[first:-1], lines[-1], ""])
    ran = accepting(tmp_path, forks, "--baseline", known, program=moved)
    assert ran.code == 1, ran.err
    assert {one["check"] for one in ran.document["findings"]} == {"gradient-sync", "checkpoint-atomic-save"}
    assert {one["where"]["line"] for one in ran.document["findings"]} == {26, 28}
    assert {one["where"]["line"] for one in ran.document["accepted"]} == {16, 18}


@pytest.mark.long
def test_without_anything_accepted_it_is_as_before(tmp_path, forks):
    """``--no-config``, and a script without the comment: the error counts."""
    program = block("python").replace(COMMENT, "")
    ran = accepting(tmp_path, forks, "--no-config", program=program, settings=block("toml"))
    assert ran.code == 1
    assert ran.found == ["gradient-sync", "checkpoint-atomic-save"]
    assert ran.document["accepted"] == []


@pytest.mark.long
def test_what_has_been_fixed(tmp_path, forks):
    """The comment and the entry match nothing, and the report says so."""
    fixed = block("python").replace("    if rank == 0:\n        torch.nn", "        torch.nn")
    fixed = fixed.replace("        torch.nn.utils", "    torch.nn.utils").replace('"last.pt"', 'f"{epoch}.pt"')
    ran = accepting(tmp_path, forks, program=fixed, settings=block("toml"))
    assert ran.code == 0, ran.err
    notes = " ".join(ran.document["notes"])
    assert (
        "the comment `ignore[gradient-sync]` matches nothing in this run; remove it unless another run needs it."
        in notes
    )
    assert "ignore entry 1 (checkpoint-atomic-save in train.py) matches nothing in this run; remove it" in notes


@pytest.mark.long
def test_a_program_that_fails_has_failed(tmp_path, forks):
    """Whatever accepts it."""
    script(tmp_path, 'setup()\nraise ValueError("no data")  # ddpcheck: ignore[rank-failure] it always does\n')
    ran = run(tmp_path, "--nproc-per-node", "2", "train.py", forks=forks)
    assert (ran.code, ran.document["verdict"], ran.document["accepted"]) == (1, "failed", [])
    assert "by which the program came to a stop: that counts all the same" in " ".join(ran.document["notes"])


@pytest.mark.long
def test_a_wrong_setting_starts_nothing(tmp_path, forks):
    """One sentence, and exit 2."""
    ran = accepting(tmp_path, forks, program="print('started')\n", settings="[tool.ddpcheck]\nstrikt = true\n")
    assert ran.code == 2
    assert ran.err.strip().splitlines()[-1].startswith("ddpcheck run: pyproject.toml: [tool.ddpcheck] has no 'strikt'")
    assert "started" not in ran.out
