"""``no-hang``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import CALL_ENDS, CALLS, GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds="every rank keeps making progress",
    order=150,
    unit="wait",
    rules=(
        Rule("deadlock-between-ranks", "ranks wait for each other, or for a rank that has ended, and can never go on"),
        Rule("no-progress", "a rank makes no progress within the time limit"),
        Rule("fit-never-returns", "fit(job) does not return within the time limit"),
        Rule("incomplete-process-group", "processes wait in init_process_group for others that do not come"),
    ),
    follows=(*ORIGINS, "device-placement", "checkpoint-single-writer", "shard-partition", "rank-failure"),
    rests_on=(*GROUPS, *CALLS, *CALL_ENDS, "ends of processes"),
    of_endings=True,
    stops=True,
)
