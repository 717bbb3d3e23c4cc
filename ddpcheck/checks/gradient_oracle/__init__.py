"""``gradient-oracle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(holds="the update equals that of one process on the whole global batch", order=160)
