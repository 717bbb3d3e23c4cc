"""The checks as docs/conformance.md lists them: ``python -m tests.conformance.page`` writes them there."""

from __future__ import annotations

from pathlib import Path

from ddpcheck.checks.registry import checks
from ddpcheck.conformance.item_descriptions import ADAPTER, about
from ddpcheck.conformance.suite_checks import CHECKLIST

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN, END = "<!-- checks -->\n", "<!-- /checks -->"


def listed() -> str:
    """A table of the check ids, and one of the situations."""
    by_id: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    for check in CHECKLIST:
        name = check.name.partition(":")[2]
        by_id.setdefault(check.id, []).append(name)
        if name and about(check) not in named.setdefault(name, []):
            named[name].append(about(check))
    lines = ["", "| check | holds when | and in the situations |", "|---|---|---|"]
    for check, names in by_id.items():
        situations = ", ".join(f"`:{name}`" for name in names if name)
        lines.append(f"| `{check}` | {checks()[check].holds if check in checks() else ADAPTER} | {situations} |")
    lines += ["", "| situation | is |", "|---|---|"]
    lines += [f"| `:{name}` | {'; '.join(abouts)} |" for name, abouts in named.items()]
    return "\n".join([*lines, "", ""])


def renewed(text: str) -> str:
    """The page with the tables as they are now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + listed() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
