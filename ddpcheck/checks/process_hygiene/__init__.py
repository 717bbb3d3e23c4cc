"""``process-hygiene``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="groups are destroyed, and no process, thread, port or shared-memory parameter is left",
    order=50,
    rests_on=("groups", "wrappers", "leaving", "what is left"),
    of_endings=True,
)
