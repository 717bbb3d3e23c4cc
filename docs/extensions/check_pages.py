"""A page for each check, and the list of them: from the explanations and programs that docs/checks.md is made of.

The pages are written before Sphinx looks for its sources, to docs/checks, which git ignores. On the site,
docs/checks.md (all texts on one page, for readers of the repository) gives its place to the list.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from ddpcheck.checks.registry import checks, explanation, has_part
from ddpcheck.report.explanations import introduction
from tests.programs.document import example, rule_table
from tests.programs.reported import folder

FAMILIES = {
    "Model and gradients": (
        "initial-broadcast",
        "reducer-coverage",
        "gradient-sync",
        "gradient-oracle",
        "parameter-sync",
        "buffer-sync",
        "optimizer-sync",
    ),
    "Data": ("shard-partition", "epoch-reshuffle", "batch-count", "rng-independence", "metric-oracle"),
    "Ranks and collectives": (
        "collective-order",
        "no-hang",
        "rank-failure",
        "device-placement",
        "process-hygiene",
    ),
    "Checkpoints": (),
}
"""How the list is divided. Checks of checkpoints are known by their names; one named nowhere is of the first part."""

LIST = """\
# The checks

One name per invariant: in assertions, in `ddpcheck run`, in reports and here. Each page has what breaks the invariant,
a wrong program, what is reported of it, and the right program. `ddpcheck explain ID` shows the text on a terminal.

"""


def family(check: str) -> str:
    """The part of the list that a check stands in."""
    for name, members in FAMILIES.items():
        if check in members:
            return name
    if check.startswith(("checkpoint-", "resume-")):
        return "Checkpoints"
    return "Model and gradients"


def page(check: str, accepting: bool) -> str:
    """The page of one check, as Markdown."""
    seen = f"{rule_table(check)}{_how_it_is_seen(check)}"
    text = f"# {check}\n\n{introduction(check)}{seen}{explanation(check).rstrip()}\n"
    shown = example(check).replace("### An example", "## An example")
    return _linked(f"{text}{shown}{_accepted(check, accepting)}", check)


def _how_it_is_seen(check: str) -> str:
    if has_part(check, "run"):
        return "In a script: `ddpcheck run`.\n\n"
    return (
        "In a script: not, since it takes a second run to compare with; the [conformance suite](../conformance.md).\n\n"
    )


def _accepted(check: str, accepting: bool) -> str:
    """How a finding that is meant is accepted; `accepting`: there is a page on it."""
    if not has_part(check, "run"):
        return (
            "\n## To accept it\n\nIn the conformance suite, name it in `expected_failures`, with the reason:\n\n"
            f'```python\n@ddpcheck.parametrize_with_checks(fit, expected_failures={{"{check}": "why it is so"}})\n```\n'
        )
    where = re.search(r"where +\S+?:(\d+)", (folder(check) / "reported.txt").read_text())
    line = ""
    if accepting and where is not None:
        of_program = (folder(check) / "faulty.py").read_text().splitlines()[int(where[1]) - 1].strip()
        line = (
            "\n\nA finding that is meant is accepted on the line that it names, with a reason:\n\n"
            f"```python\n{of_program}  # ddpcheck: ignore[{check}] why it is meant\n```\n\n"
            "[Accepting findings](../accepting.md) has the other ways: in `pyproject.toml`, and all that there are "
            "today by a baseline."
        )
    return f"\n## To accept it\n\n`--skip {check}` leaves the check out of a run.{line}\n"


def _linked(text: str, check: str) -> str:
    """The same text with its mentions of other checks, and of pages, as links; code is left alone."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"\(docs/([\w-]+)\.md\)", r"([more](../\1.md))", parts[at])
        parts[at] = re.sub(r"`([a-z]+(?:-[a-z]+)+)`", lambda m: _link(m[1], check), parts[at])
    return "".join(parts)


def _link(name: str, check: str) -> str:
    return f"[`{name}`]({name}.md)" if name in checks() and name != check else f"`{name}`"


def listed() -> str:
    """The list of all checks, by family."""
    text = LIST
    for name in FAMILIES:
        rows = [
            f"| [`{check}`](checks/{check}.md) | {its.holds} | {'yes' if has_part(check, 'run') else 'no'} |"
            for check, its in checks().items()
            if family(check) == name
        ]
        text += "\n".join([f"## {name}", "", "| check | holds when | in a script |", "|---|---|---|", *rows, "", ""])
        members = "\n".join(f"checks/{check}" for check in checks() if family(check) == name)
        text += f"```{{toctree}}\n:hidden:\n\n{members}\n```\n\n"
    return text


def write(folder: Path, accepting: bool) -> None:
    """Write the pages where they differ; several builds may do so at a time."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in checks():
            old.unlink(missing_ok=True)
    for check in checks():
        path, text = folder / f"{check}.md", page(check, accepting)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".draft", delete=False, encoding="utf-8") as draft:
                draft.write(text)
            os.replace(draft.name, path)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    source = Path(app.srcdir)
    write(source / "checks", accepting=(source / "accepting.md").exists())
    app.connect("source-read", _in_the_place_of_all_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _in_the_place_of_all_texts(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "checks":
        source[0] = listed()
