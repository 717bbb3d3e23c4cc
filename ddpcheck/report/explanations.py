"""What each invariant is, why it matters, what breaks it and how to fix that: one text for each check.

Each lies in the folder of its check, as Markdown. ``ddpcheck explain`` shows one,
docs/checks.md holds all of them.
"""

from __future__ import annotations

import difflib

from ddpcheck.checks.registry import check_of, every_check, every_rule, explanation

SECTIONS = ("Why it matters", "What breaks it", "The fix", "Severity", "What it does not see")
"""The headings of every text, in their order; what stands before the first adds to the sentence of the catalogue."""


class UnknownCheck(Exception):
    """There is no check of this name; the text names the nearest ones."""


def text_of_check(check: str) -> str:
    """The whole text of one check, as Markdown."""
    if check not in every_check():
        raise UnknownCheck(unknown(check))
    return f"# {check}\n\n{introduction(check)}{explanation(check)}"


def text_of_rule(name: str) -> str:
    """What one rule says, and the whole text of its check."""
    rule = every_rule()[name]
    advisory = "An advisory: `--advise` shows it, and it counts for nothing.\n\n" if rule.advisory else ""
    return f"# {name}\n\n> {rule.says[:1].upper()}{rule.says[1:]}.\n\n{advisory}{text_of_check(check_of(name) or '')}"


def introduction(check: str) -> str:
    """When it holds, and the assertions that ask for it."""
    holds = every_check()[check].holds
    names = ", ".join(f"`ddpcheck.{name}`" for name in every_check()[check].assertions)
    return f"> {holds[:1].upper()}{holds[1:]}.\n\n" + (f"In a test: {names}.\n\n" if names else "")


def nearest(check: str) -> str | None:
    """The id of a check or a rule that somebody who wrote this probably meant; None where there is none like it."""
    written = check.strip().lower().replace("_", "-").replace(" ", "-")
    known = [*every_check(), *(every_rule() if "/" in written else ())]
    found = difflib.get_close_matches(written, known, n=1, cutoff=0.5)
    if not found:
        words = {word: one for one in reversed(every_check()) for word in one.split("-")}
        found = [words[word] for word in difflib.get_close_matches(written, words, n=1, cutoff=0.7)]
    return found[0] if found else None


def unknown(check: str) -> str:
    """One line for an id that does not exist."""
    meant = nearest(check)
    hint = f"did you mean {meant}?" if meant is not None else "`ddpcheck checks` lists them"
    kind = "rule" if check.rpartition("/")[0] in every_check() else "check"
    return f"there is no {kind} {check!r}: {hint}"
