"""``metric-oracle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="a metric reduced over ranks equals that of one process on the same data",
    order=230,
    unit="training",
    rules=(Rule("wrong-metric-value", "a reported metric differs from that of one process on all samples"),),
)
