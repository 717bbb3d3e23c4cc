"""What each invariant is, why it matters, what breaks it and how to fix that: one text for each check.

The texts lie beside this file, as Markdown. ``ddpcheck explain`` shows one,
docs/checks.md holds all of them.
"""

from __future__ import annotations

import difflib

from ddpcheck.checks.registry import checks, every_check, explanation, has_part

SECTIONS = ("Why it matters", "What breaks it", "The fix", "Severity", "What it does not see")
"""The headings of every text, in their order; what stands before the first adds to the sentence of the catalogue."""


class UnknownCheck(Exception):
    """There is no check of this name; the text names the nearest ones."""


def text_of_check(check: str) -> str:
    """The whole text of one check, as Markdown."""
    if check not in every_check():
        raise UnknownCheck(unknown(check))
    return f"# {check}\n\n> {_sentence(check)}\n\n{_in_a_test(check)}{explanation(check)}"


def nearest(check: str) -> str | None:
    """The id that somebody who wrote this probably meant; None where there is none like it."""
    written = check.strip().lower().replace("_", "-").replace(" ", "-")
    found = difflib.get_close_matches(written, every_check(), n=1, cutoff=0.5)
    if not found:
        words = {word: one for one in reversed(every_check()) for word in one.split("-")}
        found = [words[word] for word in difflib.get_close_matches(written, words, n=1, cutoff=0.7)]
    return found[0] if found else None


def unknown(check: str) -> str:
    """One line for an id that does not exist."""
    meant = nearest(check)
    hint = f"did you mean {meant}?" if meant is not None else "`ddpcheck checks` lists them"
    return f"there is no check {check!r}: {hint}"


def as_document() -> str:
    """docs/checks.md: all texts, with a table of contents."""
    rows = [f"| [`{check}`](#{check}) | {its.holds} | {_run(check)} |" for check, its in checks().items()]
    head = [
        "# The checks",
        "",
        "One name per invariant: in assertions, in `ddpcheck run`, in reports and here. `ddpcheck explain ID` shows",
        "one of these texts. Each lies in the folder of its check, and this file is made from them: `nox -s docs`.",
        "",
        "| check | holds when | shown by `ddpcheck run` |",
        "|---|---|---|",
        *rows,
    ]
    texts = [
        f"## {check}\n\n> {_sentence(check)}\n\n{_in_a_test(check)}{_deeper(explanation(check))}" for check in checks()
    ]
    return "\n".join(head) + "\n\n" + "\n".join(texts)


def _sentence(check: str) -> str:
    holds = every_check()[check].holds
    return f"{holds[:1].upper()}{holds[1:]}."


def _in_a_test(check: str) -> str:
    """The assertions of a check, as a paragraph; nothing where there is none."""
    names = [f"`ddpcheck.{name}`" for name in every_check()[check].assertions]
    return f"In a test: {', '.join(names)}.\n\n" if names else ""


def _run(check: str) -> str:
    return "yes" if has_part(check, "run") else "no"


def _deeper(text: str) -> str:
    """The same text with its headings one level lower."""
    return "\n".join("#" + line if line.startswith("## ") else line for line in text.split("\n"))


if __name__ == "__main__":
    print(as_document(), end="")
