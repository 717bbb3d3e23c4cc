"""docs/checks.md: each check's explanation, a wrong program, what is reported of it, and what makes it right.

``python -m tests.programs.document`` runs the wrong programs and writes the page; ``nox -s check_texts`` does that.
"""

from __future__ import annotations

import ast
import difflib
import sys

from ddpcheck.checks.registry import checks, explanation, has_part
from ddpcheck.report.explanations import introduction
from tests.programs.reported import FIXTURES, folder, reported

PAGE = FIXTURES.parent / "docs" / "checks.md"

HEAD = """\
# The checks

One name per invariant: in assertions, in `ddpcheck run`, in reports and here. `ddpcheck explain ID` shows
one of these texts. Each stands in the folder of its check, its programs are in `fixtures/`, and this page is
made from them: `nox -s check_texts`.

| check | holds when | shown by `ddpcheck run` |
|---|---|---|
"""


def page() -> str:
    """The whole page, from what lies on disk."""
    rows = [f"| [`{check}`](#{check}) | {its.holds} | {_shown(check)} |\n" for check, its in checks().items()]
    texts = [
        f"\n## {check}\n\n{introduction(check)}{rule_table(check)}{_deeper(explanation(check))}{example(check)}"
        for check in checks()
    ]
    return HEAD + "".join(rows) + "".join(texts)


def rule_table(check: str) -> str:
    """What its findings can say, as a table."""
    rows = [f"| `{one.name}` | {one.says} | {'yes' if one.advisory else ''} |\n" for one in checks()[check].rules]
    return "".join(["| rule | says | advisory |\n|---|---|---|\n", *rows, "\n"]) if rows else ""


def _shown(check: str) -> str:
    """Whether ``ddpcheck run`` shows it."""
    return "yes" if has_part(check, "run") else "no"


def _deeper(text: str) -> str:
    """The same text with its headings one level lower."""
    return "\n".join("#" + line if line.startswith("## ") else line for line in text.split("\n"))


def example(check: str) -> str:
    """The wrong program of a check, what is reported of it, and what makes it right."""
    faulty, correct = ((folder(check) / name).read_text() for name in ("faulty.py", "correct.py"))
    wrong, right = _without_title(faulty), _without_title(correct)
    changes = list(difflib.unified_diff(wrong, right, n=1, lineterm=""))[2:]
    return "\n".join(
        [
            "\n### An example",
            f"\nWrong: {_title(faulty)}",
            *("\n```python", *wrong, "```"),
            "\nWhat is reported:",
            *("\n```", (folder(check) / "reported.txt").read_text().rstrip(), "```"),
            f"\nRight: {_title(correct)}",
            *("\n```diff", *(line for line in changes if not line.startswith("@@")), "```\n"),
        ]
    )


def _title(program: str) -> str:
    title = ast.get_docstring(ast.parse(program)) or ""
    return title[:1].lower() + title[1:]


def _without_title(program: str) -> list[str]:
    return program.partition('"""\n')[2].strip("\n").split("\n")


def main(only: list[str]) -> None:
    """Ask what is reported of the wrong programs (of all, or of these checks), and write the page."""
    for check in only or checks():
        print(f"{check} ...", file=sys.stderr, flush=True)
        (folder(check) / "reported.txt").write_text(reported(check))
    PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
