"""Failures that a trainer's author knows of: strict, so that neither a fix nor a misspelling goes unnoticed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from ddpcheck.conformance.results import item_id


class Expected:
    """The expected failures of a trainer: by check, or by check and world size, each with its reason.

    The name of a check stands for all world sizes from 2 on, where each has to
    fail; in one rank, where most faults cannot show, it may.
    """

    def __init__(self, reasons: Mapping[str, str], names: Collection[tuple[str, int]]) -> None:
        """``names`` are all checks that there are; raises ValueError for one that is not, or has no reason."""
        self._reasons = dict(reasons)
        known = {check for check, _ in names} | {item_id(check, size) for check, size in names}
        for name, reason in self._reasons.items():
            if name not in known:
                close = difflib.get_close_matches(str(name), sorted(known), n=1)
                hint = f": did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"expected_failures names {name!r}, and no check of this trainer is called so{hint}")
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"expected_failures[{name!r}] has no reason: say in a sentence whose fault it is")

    def reason(self, check: str, world_size: int) -> str:
        """Why this one is expected to fail; empty where it is not."""
        return self._reasons.get(item_id(check, world_size)) or self._reasons.get(check, "")

    def must_fail(self, check: str, world_size: int) -> bool:
        """Whether it is a fault of the list where this one holds."""
        return item_id(check, world_size) in self._reasons or (check in self._reasons and world_size > 1)
