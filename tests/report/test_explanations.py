"""The texts of the checks: there is one for each, in one form, and docs/checks.md is made from them."""

from __future__ import annotations

import ast
import re

import pytest

from ddpcheck.checks.registry import checks, every_check
from ddpcheck.report.explanations import SECTIONS, UnknownCheck, nearest, text_of_check, unknown
from tests.programs.document import PAGE, page


def sections(check):
    """The parts of a text, by their headings."""
    _, *parts = re.split(r"^## (.+)\n", text_of_check(check), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def code(check):
    """The lines of code of a text, block by block."""
    return re.findall(r"```python\n(.*?)```", text_of_check(check), flags=re.DOTALL)


def test_each_check_has_a_text_and_each_text_a_check():
    """No text lacks its check, no check its text."""
    there = {path.parent.name.replace("_", "-") for path in (PAGE.parents[1] / "ddpcheck").rglob("explanation.md")}
    assert there == set(checks())


@pytest.mark.parametrize("check", checks())
def test_a_text_says_all_there_is_to_know(check):
    """What it is, why it matters, what breaks it, the fix with code, how severe it is, and what it cannot see."""
    found = sections(check)
    assert tuple(found) == SECTIONS
    assert all(text.strip() for text in found.values())
    assert len(re.findall(r"^- ", found["What breaks it"], flags=re.MULTILINE)) >= 3
    assert "```python" in found["The fix"]
    assert re.match(r"An error|A warning", found["Severity"].strip())


@pytest.mark.parametrize("check", checks())
def test_the_code_of_a_text_is_python(check):
    """Every example can be parsed, and fits a terminal."""
    assert code(check)
    for block in code(check):
        ast.parse(block)
        assert max(map(len, block.splitlines())) <= 76


@pytest.mark.parametrize("check", checks())
def test_a_text_names_only_checks_that_there_are(check):
    """What looks like the id of a check is one."""
    text = re.sub(r"```python\n.*?```", "", text_of_check(check), flags=re.DOTALL)
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text)) <= set(every_check())


def test_the_document_is_up_to_date():
    """docs/checks.md is what the texts make; ``nox -s check_texts`` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gradient_sync", "gradient-sync"),
        ("Gradient Sync", "gradient-sync"),
        ("gradients", "gradient-sync"),
        ("hang", "no-hang"),
        ("rank_fail", "rank-failure"),
        ("shards", "shard-partition"),
        ("reshuffle", "epoch-reshuffle"),
        ("batchcount", "batch-count"),
        ("no-such-thing-at-all", None),
        ("", None),
        ("qqq", None),
    ],
)
def test_a_wrong_id_is_put_right(written, meant):
    """The nearest id is what somebody probably meant; what is like none is like none."""
    assert nearest(written) == meant


def test_a_wrong_id_is_one_line():
    """The complaint names what was written, and what was meant or where to look."""
    assert unknown("gradient_sync") == "there is no check 'gradient_sync': did you mean gradient-sync?"
    assert unknown("qqq") == "there is no check 'qqq': `ddpcheck checks` lists them"
    with pytest.raises(UnknownCheck, match="did you mean no-hang"):
        text_of_check("hang")
