"""The code of README and docs: each block is run, or says why it is not; what a page shows is what is printed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ddpcheck.checks.registry import checks
from tests.site.page_code import ROOT, Block, Running, blocks, comparable, pages, parts

EVERY = [block for page in pages() for block in blocks(page)]
WITH_COMMANDS = sorted({b.page for b in EVERY if b.language == "bash" and not b.said.keys() & {"not run", "run by"}})


def names(found: list[Block]) -> list[str]:
    return [block.name for block in found]


def test_there_are_blocks() -> None:
    """The pages are found, and have been read."""
    assert len(WITH_COMMANDS) > 5
    assert {page.name for page in pages()} >= {"README.md", "run.md", "start.md", "script.md"}


def test_each_block_of_python_is_run_or_says_why_not() -> None:
    """By a comment before it; see `page_code`."""
    marks = {"file", "in", "run by", "not run"}
    assert names([b for b in EVERY if b.language == "python" and not b.said.keys() & marks]) == []


def test_reasons_are_given() -> None:
    """What is not run has a reason, what another test runs is in a test that there is."""
    assert names([b for b in EVERY if "not run" in b.said and len(b.said["not run"]) < 10]) == []
    assert names([b for b in EVERY if "run by" in b.said and not (ROOT / b.said["run by"]).is_file()]) == []


def test_python_can_be_parsed() -> None:
    """All of it, in whatever indentation a fragment has."""
    wrong = []
    for block in EVERY:
        if block.language == "python":
            try:
                ast.parse("if True:\n" + block.text if block.text.startswith(" ") else block.text)
            except SyntaxError as error:
                wrong.append(f"{block.name}: {error}")
    assert wrong == []


def test_what_stands_elsewhere_is_the_same() -> None:
    """A block that a page shares with a file of the repository."""
    shared = [b for b in EVERY if "in" in b.said]
    assert names([b for b in shared if b.text not in (ROOT / b.said["in"]).read_text(encoding="utf-8")]) == []


def test_languages_are_named() -> None:
    """Commands are `bash`: nothing is left out of this test by another name."""
    assert {b.language for b in EVERY} & {"sh", "shell", "console", "py", "pycon"} == set()


def test_verdicts_count_every_check() -> None:
    """A check more is one more that holds, or is not checked, in each run that a page shows as held."""
    shown = [" ".join(block.text.split()) for block in EVERY if "shows" in block.said]
    counts = [pair for text in shown for pair in re.findall(r"(\d+) checks held in .*?, (\d+) not checked", text)]
    assert {sum(map(int, pair)) for pair in counts} == {len(checks())}


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page(page: Path, tmp_path: Path) -> None:
    """Its files and commands, in their order, with the exit codes and texts that it shows."""
    running = Running(tmp_path)
    for block in blocks(page):
        running.run(block)


# --- the tester, tested


def page_of(folder: Path, text: str) -> Path:
    """A page in the repository's place."""
    path = folder / "page.md"
    path.write_text(text)
    return path


SHOWN = "<!-- file: a.py -->\n```python\nprint('one\\ntwo\\nthree 1.5 s')\n```\n\n```bash\npython a.py\n```\n\n"


def run(folder: Path, text: str) -> None:
    running = Running(folder)
    for block in blocks(page_of(folder, text)):
        block.page = ROOT / "README.md"
        running.run(block)


def test_what_is_printed_may_be_shown(tmp_path: Path) -> None:
    """With other times, and with parts left out."""
    run(tmp_path, SHOWN + "<!-- shows -->\n```\none\n…\nthree 2 s\n```\n")


def test_what_is_not_printed_may_not(tmp_path: Path) -> None:
    """A line more, or lines in between that are not there."""
    with pytest.raises(AssertionError, match="not printed"):
        run(tmp_path, SHOWN + "<!-- shows -->\n```\none\nthree 2 s\n```\n")


@pytest.mark.parametrize(("said", "code"), [("", 1), ("<!-- exit: 1 -->\n", 0), ("<!-- exit: 1 -->\n", 2)])
def test_another_exit_code_is_found(tmp_path: Path, said: str, code: int) -> None:
    """Also where a page says that a command fails, and it does not."""
    with pytest.raises(AssertionError, match=f"ended with {code}"):
        run(tmp_path, f"{said}```bash\nexit {code}\n```\n")


def test_a_comment_is_for_the_next_block_alone(tmp_path: Path) -> None:
    """And not for one behind a paragraph."""
    block = "```python\n1\n```\n"
    text = f"<!-- not run: an example -->\n{block}{block}<!-- file: x -->\n\ntext\n\n{block}"
    assert [b.said for b in blocks(page_of(tmp_path, text))] == [{"not run": "an example"}, {}, {}]


def test_pieces() -> None:
    """Each is compared by itself."""
    assert parts("a \nb\n  …\nc 3.25s\n") == ["a b", "c 0 s"]
    assert comparable("==== 1 passed in 5.81s ====") == comparable("== 1 passed in 12.1s ==")
