"""``metric-oracle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="a metric reduced over ranks equals that of one process on the same data",
    order=230,
)
