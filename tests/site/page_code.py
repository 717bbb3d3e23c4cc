"""The code of the pages: what each block is, as the comment before it says, and how a page's blocks are run in order.

| comment | the block after it |
|---|---|
| `<!-- file: NAME -->` | is written to that file, in a folder of the page's own |
| `<!-- exit: 1 -->` | a ``bash`` block, which ends with this code; without the comment with 0 |
| `<!-- shows -->` | stands in what the last ``bash`` block has printed; a line `…` leaves some out |
| `<!-- in: FILE -->` | stands in that file of the repository |
| `<!-- run by: tests/FILE -->` | is run by that test |
| `<!-- not run: REASON -->` | is not run |

A ``bash`` block without a comment is run, in the folder of the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

from tests import progress
from tests.inner import BLOCKED

ROOT = Path(__file__).parents[2]
GENERATED = {"checks.md", "claims.md", "conformance-faults.md", "corpus.md", "libraries.md"}
"""Pages that a program writes; each has a test of its own."""

COMMENT = re.compile(r"<!-- (file|exit|shows|in|run by|not run)(?:: (.+?))? -->")
LIMIT = 240.0
"""Seconds for one block."""


@dataclass
class Block:
    """One block of code of a page."""

    page: Path
    line: int
    language: str
    text: str
    said: dict[str, str] = field(default_factory=dict)
    """What the comments before it say."""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README, and the pages of the site that people write."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("checks", "gpu")]
    return [ROOT / "README.md", *sorted(path for path in found if path.name not in GENERATED)]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in their order."""
    said: dict[str, str] = {}
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            said.update({key: value or "" for key, value in COMMENT.findall(token.content)})
        elif token.type == "fence":
            assert token.map is not None
            yield Block(page, token.map[0] + 1, token.info.strip(), token.content, said)
            said = {}
        elif token.level == 0 and not token.type.endswith("_close"):
            said = {}


class Running:
    """The blocks of one page, run in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "1",
            "PYTEST_ADDOPTS": " ".join(f"-p no:{name}" for name in (*BLOCKED, "cacheprovider")),
        }
        for name in ("PYTEST_CURRENT_TEST", "GITHUB_ACTIONS", "GITLAB_CI", "CI"):
            self.environment.pop(name, None)

    def run(self, block: Block) -> None:
        """Do with a block what its comments say."""
        if "file" in block.said:
            path = self.folder / block.said["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif "shows" in block.said:
            for part in parts(block.text):
                assert part in comparable(self.printed), f"{block.name}: not printed:\n{part}\n\nbut\n\n{self.printed}"
        elif block.language == "bash" and not block.said.keys() & {"not run", "run by"}:
            self._commands(block)

    def _commands(self, block: Block) -> None:
        ended = progress.run(
            ["bash", "-eu", "-c", block.text],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed = ended.stdout.replace(f"{self.folder}/", "")
        expected = int(block.said.get("exit", "0"))
        assert ended.returncode == expected, f"{block.name}: ended with {ended.returncode}\n{self.printed}"


def parts(text: str) -> list[str]:
    """What is shown, in the pieces that a line `…` divides it into."""
    return [comparable(part) for part in re.split(r"^ *…$", text, flags=re.MULTILINE) if part.strip()]


def comparable(text: str) -> str:
    """The same text without what differs from run to run: times, the folder, and so where a line is broken."""
    text = re.sub(r"={2,}", "=", re.sub(r"\s+", " ", text.replace("/home/you/", ""))).strip()
    return re.sub(r"\b\d+(\.\d+)? ?s\b", "0 s", text)
