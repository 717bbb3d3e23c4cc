"""How ranks, counts and places are said in messages, the same everywhere."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Literal

OUR_FAULT = "ddpcheck itself failed; this says nothing about the test. Please report it:"
"""Begins what is said of a fault of ours."""

NOT_CHECKED: Literal["not-checked"] = "not-checked"
"""A status; and among a finding's links, that it says why there was nothing to judge."""


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0 and 2``, ``ranks 0-3, 5``."""
    ordered = sorted(set(ranks))
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) == 2:
        return f"ranks {ordered[0]} and {ordered[1]}"
    spans: list[tuple[int, int]] = []
    for rank in ordered:
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return "ranks " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def count(number: int, noun: str, many: str | None = None) -> str:
    """``1 sample``, ``3 samples``, ``2,048 batches``."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def plural(noun: str) -> str:
    """``windows``, ``passes``, ``branches``."""
    return noun + ("es" if noun.endswith(("s", "ch", "x")) else "s")


def listing(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    all_names = list(names)
    shown = ", ".join(all_names[:most])
    return shown if len(all_names) <= most else f"{shown} and {len(all_names) - most} more"


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; the number itself for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
