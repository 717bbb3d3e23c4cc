"""The words that users read: the field's own, and one for one thing (docs/contributing.md has the glossary)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.package.sources import FILES, tree

ROOT = Path(__file__).parents[2]
INSTEAD = {
    r"tells?|told|telling": "report, describe, distinguish",
    r"mend(s|ed|ing)?": "fix",
    r"calls part|part ways": "diverge",
    r"shall|lest|whence|hither|thus|heed(s|ed)?|amiss|naught": "the plain word",
    r"wrongdoers?|culprits?": "the rank that failed first",
    r"stand(s)? still|a standstill": "deadlock, or hang",
    r"warn(s|ed)? off|leave[sd]? undone|left undone": "skipped, or not checked",
}
"""What is not said, as expressions, and what is said in its place."""

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/guides").glob("*.md"),
]
OF_PROGRAMS = {"corpus.md"}
"""Sentences about programs, in which one rank may tell another."""


def unwanted(text):
    """The words of a text that have a better one."""
    return [m.group() for words in INSTEAD for m in re.finditer(rf"\b({words})\b", text, flags=re.IGNORECASE)]


def messages(module):
    """The strings of a module that are sentences, or pieces of some; not what maintainers read."""
    docs = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("text", ["A deadlock is told.", "Mend it.", "Their calls part here.", "It shall hold."])
def test_a_word_is_found(text):
    """The rule can fail."""
    assert len(unwanted(text)) == 1


def test_messages_use_the_glossary():
    """Reports, --help, exceptions and whatever else the package prints."""
    found = [
        f"{name}:{line}: {words}"
        for name, path in FILES.items()
        for line, text in messages(tree(path))
        if " " in text and (words := unwanted(text))
    ]
    assert found == []


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if p.name not in OF_PROGRAMS], ids=lambda path: path.name)
def test_documents_use_the_glossary(path):
    """What is written for users, and for whoever helps; the glossary itself may name what it replaces."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [(number, words) for number, line in enumerate(lines, 1) if (words := unwanted(line))]
    assert [one for one in found if not lines[one[0] - 1].startswith("| report |")] == []


def test_explanations_use_the_glossary():
    """``ddpcheck explain``."""
    found = [
        (path.parent.name, w)
        for path in ROOT.rglob("ddpcheck/checks/*/explanation.md")
        if (w := unwanted(path.read_text()))
    ]
    assert found == []
