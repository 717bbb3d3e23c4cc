"""All rows of the suite: those of the adapter itself, and then those of every check."""

from __future__ import annotations

from ddpcheck.checks.registry import checks, part
from ddpcheck.conformance import adapter_check
from ddpcheck.trainings.suite_row import Row


def _rows() -> tuple[Row, ...]:
    modules = [part(check, "conformance") for check in checks()]
    return (*adapter_check.ROWS, *(row for module in modules if module is not None for row in module.ROWS))


CHECKLIST: tuple[Row, ...] = _rows()

BY_CHECK: dict[str, Row] = {row.name: row for row in CHECKLIST}
