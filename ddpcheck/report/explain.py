"""The texts of the checks and their rules on a terminal: their list, and one of them."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddpcheck.checks.registry import every_check, every_rule, has_part
from ddpcheck.report.console import console_on, ruled
from ddpcheck.report.explanations import text_of_check, text_of_rule


def show_checks(stream: IO[str]) -> None:
    """Print every id, and when its invariant holds; below it its rules, and what they say."""
    console = console_on(stream)
    table = ruled(console)
    known = every_check()
    table.add_column("check", min_width=max(map(len, known)) + 3, style="bold")
    table.add_column("holds when", overflow="fold")
    for check, its in known.items():
        mark = "" if has_part(check, "run") else " *"
        table.add_row(check + mark, its.holds)
        for rule in its.rules:
            says = f"{rule.says} (advisory)" if rule.advisory else rule.says
            table.add_row(Text(f"  /{rule.name}", style="not bold"), says, style="dim")
    console.print(table)
    console.print()
    console.print(Text("* takes a second run to compare with: `ddpcheck run` cannot show it", style="dim"))
    console.print(Text("ddpcheck explain ID or ID/RULE says what breaks a check, and how to fix it.", style="dim"))


def show_check(name: str, stream: IO[str]) -> None:
    """Print the text of one check or rule; ``UnknownCheck`` where there is none."""
    show_text(text_of_rule(name) if name in every_rule() else text_of_check(name), stream)


def show_text(text: str, stream: IO[str]) -> None:
    """Print Markdown."""
    console = console_on(stream)
    for block in _blocks(text):
        _print(console, block)


def _blocks(text: str) -> list[list[str]]:
    """Paragraphs, headings, list items and blocks of code, each as its lines."""
    blocks: list[list[str]] = []
    code = fresh = False
    for line in text.split("\n"):
        if line.startswith("```"):
            code, fresh = not code, True
            if code:
                blocks.append([line])
        elif code:
            blocks[-1].append(line)
        elif not line.strip():
            fresh = True
        elif fresh or not blocks or line.startswith(("- ", "#")):
            blocks.append([line])
            fresh = False
        else:
            blocks[-1].append(line)
    return blocks


def _print(console: Console, block: list[str]) -> None:
    first = block[0]
    if first.startswith("```"):
        console.print()
        console.print(Padding(Text("\n".join(block[1:]), style="cyan", overflow="fold"), (0, 0, 0, 4)))
        return
    words = " ".join(line.strip() for line in block)
    if first.startswith("- "):
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row("-", words[2:])
        console.print(Padding(grid, (0, 0, 0, 2)))
        return
    if not first.startswith("# "):
        console.print()
    console.print(Text(words.lstrip("#> "), style="bold" if first.startswith("#") else ""))
