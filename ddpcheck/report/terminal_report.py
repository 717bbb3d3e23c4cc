"""A verdict for a person: what held, what broke, where and why, and what to do, from the top down."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddpcheck.report import call_chain, check_rows, finding_module
from ddpcheck.report.console import across, console_on, plain, prose, ruled
from ddpcheck.report.finding_text import accepted_line, circumstances, in_a_line, labelled
from ddpcheck.report.folded_sections import Fold, unfolded
from ddpcheck.report.source_lines import AFTER, BEFORE, Line, Sources
from ddpcheck.report.standstill_table import numbered, parted, parts_where_it_stands, places, stands
from ddpcheck.verdict.verdict import Exit, Verdict
from ddpcheck.vocabulary.model import CallSite, Finding, Status
from ddpcheck.vocabulary.wording import count, listing, ranks_text, signal_name

_COLOURS = {
    "held": "bold green",
    "violated": "bold red",
    "failed": "bold red",
    "hung": "bold red",
    "interrupted": "bold yellow",
    "nothing-checked": "bold yellow",
}
LONGEST = 700
"""Characters of a part of a finding that are shown."""

_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "advisory": "bold blue"}
_STATUSES: dict[Status, str] = {"violated": "red", "at-risk": "yellow", "held": "green", "not-checked": "dim"}


def show(
    verdict: Verdict,
    stream: IO[str],
    written: Sequence[Path] = (),
    strict: bool = False,
    fold: Fold = unfolded,
    verbose: bool = False,
) -> None:
    """Print the report: each finding in full, and what was checked; ``fold`` hides the tables.

    ``written`` are the files in which it can be found again; ``verbose`` has all lines around each finding, a table of
    the checks, and the reasons why the others were not checked. ``close`` prints the end.
    """
    console = console_on(stream)
    sources = Sources(verdict.folder, verdict.lines)
    console.print()
    console.print(across(console, "ddpcheck"))
    console.print(_headline(verdict, strict))
    if verdict.parallelism:
        console.print(Text.assemble(("parallelism seen: ", "bold"), prose(verdict.parallelism), overflow="fold"))
    for number, finding in enumerate(verdict.findings, 1):
        console.print()
        console.print(finding_block(number, finding, verdict, sources, verbose))
    if verdict.advisories:
        blocks = [finding_block(n, one, verdict, sources, verbose) for n, one in enumerate(verdict.advisories, 1)]
        _section(console, "advisories (they do not count)", *blocks)
    if verdict.hang is not None:
        both = parts_where_it_stands(verdict.hang)
        also = ", and where their collectives part" if both else ""
        _section(console, f"where the ranks were last seen{also}", stands(verdict.hang))
        if verdict.hang.parted is not None and not both:
            title = f"where their collectives part: {numbered(verdict.hang.parted)}"
            _section(console, title, parted(verdict.hang.parted))
    if verbose or fold is not unfolded:
        if any(result.status != "not-checked" for result in verdict.checks.values()):
            _folded(console, fold, "checks", _checks(console, verdict))
        if any(result.status == "not-checked" for result in verdict.checks.values()):
            _folded(console, fold, "not checked", _not_checked(verdict))
    for internal in verdict.internal:
        console.print()
        console.print(Text(f"ddpcheck itself failed: {plain(internal)}", style="bold magenta"))
        console.print(Text("This is a defect of ddpcheck, not of the program; please report it.", style="magenta"))
    console.print()
    console.print(_in_brief(verdict, checks=not (verbose or fold is not unfolded)))
    for path in written:
        console.print(Text(f"written to   {plain(str(path))}", style="dim"), soft_wrap=True)


def close(verdict: Verdict, stream: IO[str], code: int, strict: bool = False) -> None:
    """Print the end of the report, below whatever else is to be said: a line for each finding, and the verdict."""
    console = console_on(stream)
    more = f"more: ddpcheck explain {verdict.findings[0].name}" if verdict.findings else ""
    console.print(across(console, more) if len(more) + 4 < console.width else more, soft_wrap=True)
    for finding in verdict.findings:
        line = Text(plain(in_a_line(finding)).replace("\n", " "))
        line.highlight_words([f"{finding.severity}  "], _SEVERITIES[finding.severity])
        console.print(line, soft_wrap=True)
    why = "ddpcheck itself failed" if verdict.internal else "not all files were written"
    failed = f"; {why}" if code == Exit.INTERNAL else ""
    style = _COLOURS["interrupted" if failed else tone(verdict)]
    last = f"  {_came_to(verdict, strict)}{failed}, exit code {code}"
    console.print(Text.assemble((word(verdict), style), last), soft_wrap=True)


def _section(console: Console, title: str, *content: RenderableType) -> None:
    _folded(console, unfolded, title, *content)


def _folded(console: Console, fold: Fold, title: str, *content: RenderableType) -> None:
    console.print()
    with fold(title) as told:
        if not told:
            console.print(Text(title, style="bold"))
        for one in content:
            console.print(Padding(one, (0, 0, 0, 2)))


def _grid(label: int | None = None) -> Table:
    grid = Table.grid(padding=(0, 2 if label else 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=label)
    grid.add_column(overflow="fold")
    return grid


# --- the verdict


def word(verdict: Verdict) -> str:
    """The verdict in a word; one that is held but for what is accepted says so."""
    words = verdict.verdict.replace("-", " ").upper()
    if verdict.verdict == "held" and verdict.accepted:
        words += f", with {count(len(verdict.accepted), 'accepted finding')}"
    return words


def tone(verdict: Verdict) -> str:
    """The verdict that its colour is to be that of: what is at risk is not shown as what is well."""
    return "interrupted" if verdict.verdict == "held" and verdict.findings else verdict.verdict


def _headline(verdict: Verdict, strict: bool) -> Text:
    parts = [prose(sentence(verdict, strict))]
    if verdict.missing:
        parts.append(f"The evidence of {ranks_text(verdict.missing)} is missing.")
    return Text.assemble((word(verdict), _COLOURS[tone(verdict)]), f"  {' '.join(parts)}", overflow="fold")


def sentence(verdict: Verdict, strict: bool) -> str:
    """What was run, and what came of it, in a sentence."""
    ran = verdict.command or "the program"
    where = _where(verdict)
    steps = f" after {count(verdict.steps, 'optimizer step')}" if verdict.steps else ""
    within = f" in {count(verdict.steps, 'optimizer step')}" if verdict.steps else ""
    took = f", {verdict.seconds:.1f} s."
    found = _found(verdict, strict)
    if verdict.verdict == "hung":
        return f"{ran}{where}: hung{steps}: {found}{took}"
    if verdict.verdict == "failed":
        return f"{ran}{where}: failed{steps}: {found}{took}"
    if verdict.interrupted_by is not None:
        by = f"interrupted by {signal_name(verdict.interrupted_by)}{steps or ' before the first optimizer step'}"
        return f"{ran}{where}: {by}: {found}{took}"
    if verdict.verdict == "violated":
        return f"{ran}{where}: {found}{within}{took}"
    if verdict.verdict == "nothing-checked":
        told = f"; {found}" if verdict.findings else ""
        if verdict.missing:
            return f"{ran}{where}: nothing could be checked{told}{took}"
        if verdict.part:
            return f"{ran}{where}: {verdict.part}, with nothing in it that a check could look at{told}{took}"
        if not verdict.understood:
            held = sum(result.status == "held" for result in verdict.checks.values())
            what = "ddpcheck did not see what of the model each rank holds, and did not compare their models"
            return f"{ran}{where}: {what}; {count(held, 'check')} of other things held{told}{took}"
        alone = "one rank has nothing to be compared with"
        what = alone if verdict.world_size == 1 else "nothing was seen that a check could judge"
        return f"{ran}{where}: {what}{told}{took}"
    part = f", in a part of the run ({verdict.part})" if verdict.part else ""
    return f"{ran}{where}: {_came_to(verdict, strict, within)}{part}{took}"


def _came_to(verdict: Verdict, strict: bool, within: str = "") -> str:
    """What a run came to: its findings, or what held, and what was not checked."""
    if verdict.verdict != "held":
        return _found(verdict, strict)
    statuses = [result.status for result in verdict.checks.values()]
    parts = [f"{count(statuses.count('held'), 'check')} held{within}"]
    parts += [f"{at_risk} at risk"] if (at_risk := statuses.count("at-risk")) else []
    parts += [f"{statuses.count('not-checked')} not checked"]
    parts += [f"with {_found(verdict, strict)}"] if verdict.findings else []
    return ", ".join(parts)


def _where(verdict: Verdict) -> str:
    if not verdict.world_size:
        return ""
    nodes = f" on {verdict.nnodes} nodes" if verdict.nnodes > 1 else ""
    return f", {count(verdict.world_size, 'rank')}{nodes}"


def _found(verdict: Verdict, strict: bool) -> str:
    parts = [count(verdict.errors, "error")] if verdict.errors else []
    if verdict.warnings:
        parts.append(count(verdict.warnings, "warning") + (" (an error under --strict)" if strict else ""))
    found = " and ".join(parts) or "no finding"
    return f"{found} beside {count(len(verdict.accepted), 'accepted one')}" if verdict.accepted else found


# --- findings


def finding_block(
    place: int, finding: Finding, verdict: Verdict, sources: Sources, verbose: bool = False
) -> RenderableType:
    """One finding, with its number, its line of code and what to do; errors with the lines around theirs."""
    head = Text.assemble(
        (finding.severity, _SEVERITIES[finding.severity]),
        "  ",
        (finding.name, "bold"),
        f"  {plain(finding.subject)}",
    )
    parts: list[RenderableType] = [head]
    way = _ways(finding, sources)
    when = (prose(circumstances(finding, verdict.world_size)), "dim")
    if finding.where is None:
        head.append(*when)
    else:
        parts.append(Text.assemble((plain(way(finding.where)), "cyan"), when))
        around = (BEFORE, AFTER) if verbose or finding.severity == "error" else (0, 0)
        lines = sources.excerpt(finding.where, *around)
        parts += [_code(lines)] if lines else []
    grid = _grid(label=8)
    for label, text in labelled(finding):
        grid.add_row(Text(label, style="dim"), prose(_without_middle(text)))
        if label == "found" and (part := _part(finding, sources)) is not None:
            grid.add_row(Text("module", style="dim"), part)
    shown = {finding.where, *(places(verdict.hang) if verdict.hang is not None else ())}
    for number, line in enumerate(_further(finding, sources, shown, way)):
        grid.add_row(Text("" if number else "see also", style="dim"), line)
    if finding.also:
        grid.add_row(Text("breaks", style="dim"), f"{listing(finding.also, 8)} as well, as a consequence")
    parts.append(grid)
    whole = _grid()
    whole.add_row(f"{place}.", Group(*parts))
    return whole


def _part(finding: Finding, sources: Sources) -> Text | None:
    """The module that the subject belongs to, with the line of code that has made it."""
    module = finding_module.told(finding)
    if not module:
        return None
    text = Text(plain(module))
    where = finding_module.line(finding)
    if where is not None and where != finding.where and (code := sources.line(where)):
        text.append(f"\n{plain(code)}", style="dim")
    return text


def _ways(finding: Finding, sources: Sources) -> Callable[[CallSite], str]:
    """Gives a line and the way to it, which is whole where its ranks came to the line in several ways."""
    chains: dict[CallSite, set[tuple[CallSite, ...]]] = {}
    for where in (finding.where, *(where for _, where in finding.proof)):
        if where is not None:
            chains.setdefault(where, set()).add(where.chain)
    return lambda where: call_chain.way(where, sources.line, whole=len(chains[where]) > 1)


def _further(
    finding: Finding, sources: Sources, shown: Collection[CallSite | None], way: Callable[[CallSite], str]
) -> Iterator[Text]:
    """The other lines that show it, if they are not shown elsewhere: each with the ranks that were there."""
    ranks: dict[str, tuple[CallSite, set[int]]] = {}
    callers = finding.where.chain[:-1] if finding.where is not None else ()
    for rank, where in finding.proof:
        others = where.chain[:-1] != callers
        if where not in shown or others:
            ranks.setdefault(way(where) if others else str(where), (where, set()))[1].add(rank)
    for place, (where, there) in ranks.items():
        text = Text(prose(f"{place} ({ranks_text(there)})"))
        if line := sources.line(where):
            text.append(f": {plain(line)}", style="dim")
        yield text


def _without_middle(text: str) -> str:
    """A long text without its middle: an exception's whole message stands in the other reports."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST * 3 // 4]} […] {text[-LONGEST // 4 :]}"


def _code(lines: Iterable[Line]) -> Table:
    """Lines of code with their numbers, one of them marked."""
    lines = list(lines)
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    width = len(str(lines[-1].number))
    for line in lines:
        style = "bold" if line.marked else "dim"
        mark = ">" if line.marked else " "
        grid.add_row(Text(f"{mark} {line.number:>{width}} |", style=style), Text(plain(line.text), style=style))
    return grid


# --- the checks


def _checks(console: Console, verdict: Verdict) -> Table:
    """What was checked."""
    table = ruled(console)
    for title in ("check", "status", "compared", ""):
        table.add_column(title, justify="right" if title == "compared" else "left", overflow="fold")
    for row in check_rows.checked(verdict):
        status = Text(row.status.replace("-", " "), style=_STATUSES[row.status])
        table.add_row(row.check, status, prose(row.compared), Text(row.told, style="dim"))
    return table


def _not_checked(verdict: Verdict) -> Table:
    """The others, by the reason why."""
    table = Table.grid()
    table.add_column(overflow="fold")
    for reason, checks in check_rows.unchecked(verdict):
        table.add_row(", ".join(checks))
        table.add_row(Padding(Text(prose(reason), style="dim"), (0, 0, 0, 4)))
    return table


def _in_brief(verdict: Verdict, checks: bool) -> Table:
    """What held, what was not checked, what is accepted, and what is to be known of the run.

    A check that has findings stands with them; ``checks``: those without have no table of their own.
    """
    rows = [("held", "green", _held(verdict)), ("not checked", "dim", _unchecked(verdict))] if checks else []
    rows += [("accepted", "bold", accepted_line(one)) for one in verdict.accepted]
    rows += [("note", "bold", note) for note in verdict.notes]
    grid = _grid(label=11)
    for label, style, text in rows:
        if text:
            grid.add_row(Text(label, style=style), prose(text))
    return grid


def _held(verdict: Verdict) -> str:
    return ", ".join(f"{check} {one.coverage}" for check, one in verdict.checks.items() if one.status == "held")


def _unchecked(verdict: Verdict) -> str:
    """How many checks were not made; of a training that never began, nothing."""
    reasons = check_rows.unchecked(verdict)
    if not reasons or (verdict.verdict in ("failed", "hung", "interrupted") and not verdict.steps):
        return ""
    text = f"{count(sum(len(names) for _, names in reasons), 'check')}; --verbose gives the reasons"
    if verdict.verdict == "nothing-checked":
        reason, names = max(reasons, key=lambda one: len(one[1]))
        text += f". {len(names):,} of them: {reason}"
    return text
