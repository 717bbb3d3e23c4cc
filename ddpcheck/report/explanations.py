"""What each invariant is, why it matters, what breaks it and how to fix that: one text for each check.

Each lies in the folder of its check, as Markdown. ``ddpcheck explain`` shows one,
docs/checks.md holds all of them.
"""

from __future__ import annotations

import difflib

from ddpcheck.checks.registry import every_check, explanation

SECTIONS = ("Why it matters", "What breaks it", "The fix", "Severity", "What it does not see")
"""The headings of every text, in their order; what stands before the first adds to the sentence of the catalogue."""


class UnknownCheck(Exception):
    """There is no check of this name; the text names the nearest ones."""


def text_of_check(check: str) -> str:
    """The whole text of one check, as Markdown."""
    if check not in every_check():
        raise UnknownCheck(unknown(check))
    return f"# {check}\n\n{introduction(check)}{explanation(check)}"


def introduction(check: str) -> str:
    """When it holds, and the assertions that ask for it."""
    holds = every_check()[check].holds
    names = ", ".join(f"`ddpcheck.{name}`" for name in every_check()[check].assertions)
    return f"> {holds[:1].upper()}{holds[1:]}.\n\n" + (f"In a test: {names}.\n\n" if names else "")


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
