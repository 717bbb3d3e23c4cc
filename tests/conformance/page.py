"""The checks as docs/conformance.md lists them: ``python -m tests.conformance.page`` writes them there."""

from __future__ import annotations

from pathlib import Path

from ddpcheck.catalogue import CHECKS
from ddpcheck.conformance.checklist import CHECKLIST
from ddpcheck.conformance.situations import BY_NAME

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN, END = "<!-- checks -->\n", "<!-- /checks -->"
ADAPTER = "`fit` trains the job's model, by its loss, for all epochs, and returns"


def listed() -> str:
    """A table of the check ids, and one of the situations."""
    by_id: dict[str, list[str]] = {}
    for check in CHECKLIST:
        by_id.setdefault(check.id, []).append(check.name.partition(":")[2])
    lines = ["", "| check | holds when | and in the situations |", "|---|---|---|"]
    for check, names in by_id.items():
        situations = ", ".join(f"`:{name}`" for name in names if name)
        lines.append(f"| `{check}` | {CHECKS.get(check, ADAPTER)} | {situations} |")
    lines += ["", "| situation | is |", "|---|---|"]
    named = dict.fromkeys(name for names in by_id.values() for name in names if name in BY_NAME)
    lines += [f"| `:{name}` | {BY_NAME[name].about} |" for name in named]
    return "\n".join([*lines, "", ""])


def renewed(text: str) -> str:
    """The page with the tables as they are now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + listed() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
