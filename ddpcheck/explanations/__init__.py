"""What each invariant is, why it matters, what breaks it and how to fix that: one text for each check.

The texts lie beside this file, as Markdown. ``ddpcheck explain`` shows one,
docs/checks.md holds all of them.
"""

from __future__ import annotations

import difflib
from importlib import resources

from ddpcheck.checks.catalogue import ASSERTIONS, CHECKS, ORACLES

SECTIONS = ("Why it matters", "What breaks it", "The fix", "Severity", "What it does not see")
"""The headings of every text, in their order; what stands before the first adds to the sentence of the catalogue."""


class UnknownCheck(Exception):
    """There is no check of this name; the text names the nearest ones."""


def text_of_check(check: str) -> str:
    """The whole text of one check, as Markdown."""
    if check not in CHECKS:
        raise UnknownCheck(unknown(check))
    return f"# {check}\n\n> {_sentence(check)}\n\n{_in_a_test(check)}{_body(check)}"


def nearest(check: str) -> str | None:
    """The id that somebody who wrote this probably meant; None where there is none like it."""
    written = check.strip().lower().replace("_", "-").replace(" ", "-")
    found = difflib.get_close_matches(written, CHECKS, n=1, cutoff=0.5)
    if not found:
        words = {word: one for one in reversed(CHECKS) for word in one.split("-")}
        found = [words[word] for word in difflib.get_close_matches(written, words, n=1, cutoff=0.7)]
    return found[0] if found else None


def unknown(check: str) -> str:
    """One line for an id that does not exist."""
    meant = nearest(check)
    hint = f"did you mean {meant}?" if meant is not None else "`ddpcheck checks` lists them"
    return f"there is no check {check!r}: {hint}"


def as_document() -> str:
    """docs/checks.md: all texts, with a table of contents."""
    rows = [f"| [`{check}`](#{check}) | {holds} | {_run(check)} |" for check, holds in CHECKS.items()]
    head = [
        "# The checks",
        "",
        "One name per invariant: in assertions, in `ddpcheck run`, in reports and here. `ddpcheck explain ID` shows",
        "one of these texts. They are written down in ddpcheck/explanations, and this file is made from them:",
        "`python -m ddpcheck.explanations > docs/checks.md`.",
        "",
        "| check | holds when | shown by `ddpcheck run` |",
        "|---|---|---|",
        *rows,
    ]
    texts = [f"## {check}\n\n> {_sentence(check)}\n\n{_in_a_test(check)}{_deeper(_body(check))}" for check in CHECKS]
    return "\n".join(head) + "\n\n" + "\n".join(texts)


def _sentence(check: str) -> str:
    holds = CHECKS[check]
    return f"{holds[:1].upper()}{holds[1:]}."


def _in_a_test(check: str) -> str:
    """The assertions of a check, as a paragraph; nothing where there is none."""
    names = [f"`ddpcheck.{name}`" for name in ASSERTIONS.get(check, ())]
    return f"In a test: {', '.join(names)}.\n\n" if names else ""


def _run(check: str) -> str:
    return "no" if check in ORACLES else "yes"


def _body(check: str) -> str:
    return resources.files(__name__).joinpath(f"{check}.md").read_text(encoding="utf-8")


def _deeper(text: str) -> str:
    """The same text with its headings one level lower."""
    return "\n".join("#" + line if line.startswith("## ") else line for line in text.split("\n"))
