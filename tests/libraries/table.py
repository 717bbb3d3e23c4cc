"""The conformance suite on real training libraries, as tables: what held, and what fails for which reason.

    python tests/libraries/table.py [--markdown FILE] [NAME …]

shows a table for each library, or for the named ones, and exits with 1 where
one does other than is known; with ``--markdown`` it writes docs/libraries.md.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from small_programs import SHOWS, Program, programs  # noqa: E402

import ddpcheck  # noqa: E402

LOSSES = ("samples", "tokens", "pairs")


class Library(NamedTuple):
    """One of them, and where its adapter is."""

    name: str
    title: str
    adapter: str
    packages: tuple[str, ...]


LIBRARIES = (
    Library("plain", "a plain loop", "fixtures.trainers.plain", ()),
    Library("accelerate", "accelerate", "fixtures.trainers.with_accelerate", ("accelerate",)),
    Library("fabric", "Lightning Fabric", "fixtures.trainers.with_fabric", ("lightning",)),
    Library("lightning", "Lightning's Trainer", "fixtures.trainers.with_lightning", ("lightning", "torchdata")),
)


def expected_of(library: Library) -> dict[str, str]:
    """What is known to fail, and why."""
    found: dict[str, str] = getattr(importlib.import_module(library.adapter), "EXPECTED", {})
    return found


def run(library: Library) -> tuple[ddpcheck.Results, float]:
    """The whole suite on one library, and the CPU seconds that it took in all processes together."""
    adapter = importlib.import_module(library.adapter)
    before = spent()
    results = ddpcheck.check_trainer(
        adapter.fit,
        losses=getattr(adapter, "LOSSES", LOSSES),
        expected_failures=expected_of(library),
        on_failure="return",
    )
    return results, spent() - before


def spent() -> float:
    """CPU seconds of this process and of those that it has started and seen end."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# --- the document


def document(found: list[tuple[Library, ddpcheck.Results]], seconds: dict[str, float]) -> str:
    """docs/libraries.md; ``seconds`` are CPU seconds, by title."""
    packages = ["torch", *dict.fromkeys(package for library, _ in found for package in library.packages)]
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    cost = ", ".join(f"{title} {number:.0f}" for title, number in seconds.items())
    lines = [
        "# Real libraries",
        "",
        "The conformance suite on training libraries as they are installed, at world sizes 1 to 4 (gloo on CPU). Each",
        "has an adapter in fixtures/trainers, written as its users would write a training, with what it has for that.",
        "`nox -s libraries` installs them, holds them against this table, and shows it;",
        "`python tests/libraries/table.py --markdown docs/libraries.md` makes this file.",
        "",
        f"Versions: {versions}, Python {platform.python_version()}. "
        f"The whole suite took so many CPU seconds, in all processes together: {cost}.",
        "",
        "| check | " + " | ".join(library.title for library, _ in found) + " |",
        "|---" * (len(found) + 1) + "|",
        *rows(found),
        "",
        "`held` is at all world sizes. `-` is not checked: the library has no such thing, it asks a GPU for what",
        "simulated ones do not have (`:devices`), or there was nothing to see (device-placement needs a GPU).",
        "",
        "## What fails, and why",
        "",
        "Each of these is shown by a small program without ddpcheck (fixtures/libraries), and is on the adapter's list",
        "of expected failures, which is strict: the day that a library fixes it, the session fails and the entry goes.",
        "accelerate 1.14 fails resume-equivalence as well: what skip_first_batches returned began with the order of",
        "the first epoch, in whichever epoch it was resumed; 1.15 has fixed that.",
    ]
    for library, _ in found:
        reasons = expected_of(library)
        for program in programs():
            if (check := SHOWS.get(program.file.stem)) in reasons and program.library == library.name:
                lines += ["", f"### {library.title}: {check}", "", f"{capital(reasons[check])}.", *shown(program)]
    lines += [
        "",
        "## What an adapter has to know",
        "",
        "These do not fail above, since the adapters know of them. One that does not is told, by the check that is",
        "named.",
    ]
    for program in programs():
        if (check := SHOWS[program.file.stem]) not in expected_of(library_of(program)):
            lines += ["", f"### {library_of(program).title}: {check}", "", program.claim, *shown(program)]
    return "\n".join(lines) + "\n"


def library_of(program: Program) -> Library:
    return next(library for library in LIBRARIES if library.name == program.library)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def shown(program: Program) -> list[str]:
    """A program, and what it prints."""
    return ["", "```python", program.code, "```", "", "prints", "", "```", *program.printed, "```"]


def rows(found: list[tuple[Library, ddpcheck.Results]]) -> list[str]:
    """A line for each check."""
    checks = dict.fromkeys(result.check for _, results in found for result in results)
    return [f"| {check} | " + " | ".join(cell(results, check) for _, results in found) + " |" for check in checks]


def cell(results: ddpcheck.Results, check: str) -> str:
    """What became of a check at all world sizes."""
    said: dict[str, list[int]] = {}
    for result in results:
        if result.check == check:
            said.setdefault(WORDS[result.status], []).append(result.world_size)
    if len(said) <= 1:
        return next(iter(said), "-")
    return ", ".join(f"{word} in {sizes(numbers)}" for word, numbers in said.items())


WORDS = {"held": "held", "at-risk": "at risk", "expected": "**fails**", "violated": "**violated**", "not-checked": "-"}


def sizes(numbers: list[int]) -> str:
    """``1``, or ``2 to 4``."""
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if in_a_row else " and ".join(map(str, numbers))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write docs/libraries.md there")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(library.name for library in LIBRARIES))
    options: Any = parser.parse_args(arguments)
    chosen = [library for library in LIBRARIES if not options.names or library.name in options.names]
    found, seconds = [], {}
    for library in chosen:
        results, seconds[library.title] = run(library)
        found.append((library, results))
        print(f"{results}\nCPU seconds: {seconds[library.title]:.0f}\n", flush=True)
    if options.markdown is not None:
        options.markdown.write_text(document(found, seconds))
    return 0 if found and all(results.ok for _, results in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
