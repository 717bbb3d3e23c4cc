"""Comments on lines: where one counts, what it must have, and what is no comment."""

from __future__ import annotations

import pytest

from ddpcheck.acceptance.line_comments import LineComments, comment_of
from ddpcheck.vocabulary.model import CallSite

OK = "# ddpcheck: ignore[gradient-sync] the ranks train models of their own"


def at(folder, text, line, recorded=None, file="train.py"):
    """The comments that concern a line of a file with this text; ``recorded`` is what the rank has seen of the line."""
    (folder / file).write_text(text)
    seen = {f"{file}:{line}": recorded} if recorded is not None else {}
    return LineComments(str(folder), seen).at(CallSite(file=file, line=line, function="train"))


def accepted(found):
    return [(one.line, one.checks, one.reason) for one in found]


@pytest.mark.parametrize(
    ("comment", "checks", "reason"),
    [
        (OK, ("gradient-sync",), "the ranks train models of their own"),
        ("#ddpcheck:ignore[gradient-sync]why", ("gradient-sync",), "why"),
        ("# ddpcheck: ignore[gradient-sync, buffer-sync] see #12", ("gradient-sync", "buffer-sync"), "see #12"),
        ("# ddpcheck: ignore[gradient-sync]: why", ("gradient-sync",), "why"),
        ("# noqa: E501  # ddpcheck: ignore[gradient-sync] why  # type: ignore", ("gradient-sync",), "why"),
    ],
)
def test_a_comment_names_checks_and_a_reason(tmp_path, comment, checks, reason):
    """Several checks; with other comments before and behind it."""
    (found,) = at(tmp_path, f"step()  {comment}\n", 1)
    assert (found.checks, found.reason, found.wrong) == (checks, reason, ())


@pytest.mark.parametrize(
    ("comment", "checks", "wrong"),
    [
        ("# ddpcheck: ignore because", (), "it names no check"),
        ("# ddpcheck: ignore[] because", (), "it names no check"),
        ("# ddpcheck: ignore[gradient-sync", (), "it names no check"),
        ("# ddpcheck: ignore[gradient-sync]", (), "it gives no reason"),
        ("# ddpcheck: ignore[gradient-sync]  # noqa", (), "it gives no reason"),
        ("# ddpcheck: ignore[gradient-snyc] why", (), "did you mean gradient-sync?"),
        ("# ddpcheck: ignore[everything, buffer-sync] why", ("buffer-sync",), "`ddpcheck checks` lists them"),
    ],
)
def test_what_is_wrong_with_a_comment_is_known(tmp_path, comment, checks, wrong):
    """Without a check or a reason it accepts nothing; an unknown id leaves the others alone."""
    (found,) = at(tmp_path, f"step()  {comment}\n", 1)
    assert found.checks == checks
    assert wrong in found.wrong[0]


@pytest.mark.parametrize(
    "text",
    [
        "step()  # ddpcheck is good\n",
        "step()  # ddpcheck: ignored\n",
        f'step("{OK}")\n',
        f'step("""\n{OK}\n""")\n',
        f"{OK}\nstep()\n",
        f"step()\n{OK}\n",
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_no_comment_on_the_line(tmp_path, text, recorded):
    """A string is none, nor is a line of its own above or below."""
    line = next(n for n, one in enumerate(text.splitlines(), 1) if one.startswith("step"))
    assert at(tmp_path, text, line, text.splitlines()[line - 1] if recorded else None) == []


SEVERAL = f"""
save(
    state,
    path(epoch),
)  {OK}
if (a  {OK}
        and b()):
    step()
    call(
        x,
    )
@decorated(a)
@other(
    b)
def function():
    step()
with open(
    a(),
    b(),  {OK}
):
    pass
"""


@pytest.mark.parametrize(
    ("line", "comments"),
    [(2, [5]), (3, [5]), (4, [5]), (5, [5]), (6, [6]), (7, [6]), (8, []), (10, []), (13, []), (16, []), (17, []),
     (18, []), (19, [19])],
)  # fmt: skip
def test_a_comment_concerns_its_statement(tmp_path, line, comments):
    """On the first line of a statement or its last; of one with a body only the head counts, and never another's."""
    assert [found.line for found in at(tmp_path, SEVERAL, line)] == comments


def test_the_line_counts_as_it_was(tmp_path):
    """In a file that was changed since, the recorded line alone is known."""
    text = f"step()  {OK}\n"
    assert accepted(at(tmp_path, text, 1, "step()")) == []
    assert len(at(tmp_path, "step()\n", 1, f"step()  {OK}")) == 1
    assert len(at(tmp_path, f"# new\n{text}", 1, text.strip())) == 1


@pytest.mark.parametrize(
    ("recorded", "there"),
    [
        (f"step()  {OK}", True),
        (f"model(x,  {OK}", True),
        (f"x)  {OK}", True),
        (f"))], y)  {OK}", True),
        (f'log("{OK}', False),
        (f'log("{OK}")', False),
        ("step()", False),
    ],
)
def test_a_line_of_another_host_stands_alone(tmp_path, recorded, there):
    """A piece of a statement is read as far as it goes."""
    found = LineComments(str(tmp_path), {"away.py:7": recorded}).at(CallSite(file="away.py", line=7, function="f"))
    assert bool(found) == there


def test_a_line_that_was_cut_is_still_itself(tmp_path):
    """The evidence has 200 characters of it; the file has the rest."""
    text = f"step({'a' * 200})  {OK}\n"
    assert len(at(tmp_path, text, 1, text[:200])) == 1


@pytest.mark.parametrize("text", ["step(\n", "x = '\n", "\0", f"step()  {OK}\n  nothing\n y\n"])
def test_a_file_that_is_no_python_any_more(tmp_path, text):
    """It counts as changed."""
    assert at(tmp_path, text, 1) == []
    assert len(at(tmp_path, text, 1, f"step()  {OK}")) == 1


def test_a_file_in_another_encoding(tmp_path):
    """As its first line says; the comment's reason keeps its letters."""
    (tmp_path / "latin.py").write_bytes(
        "# coding: latin-1\nstep()  # ddpcheck: ignore[buffer-sync] für später\n".encode("latin-1")
    )
    (found,) = LineComments(str(tmp_path), {}).at(CallSite(file="latin.py", line=2, function="f"))
    assert found.reason == "für später"


@pytest.mark.parametrize(
    ("line", "comment"),
    [("a  # b", "# b"), ("a = '#b'", ""), ("f(x,  # b", "# b"), ("f'{x}'  # b", "# b"), ("", ""), ("'a # b", "")],
)
def test_the_comment_of_a_line(line, comment):
    """What begins with a # outside of strings."""
    assert comment_of(line) == comment
