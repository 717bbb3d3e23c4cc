"""``no-hang``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

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
    follows=(
        "device-placement",
        "checkpoint-load-complete",
        "checkpoint-single-writer",
        "checkpoint-read-after-write",
        "process-hygiene",
        "shard-partition",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "rank-failure",
    ),
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "forwards",
        "backwards",
        "armed forwards",
        "reduced parameters",
        "reductions",
        "broadcasts of buffers",
        "leaving",
        "unfinished calls",
        "ends of processes",
    ),
    of_endings=True,
    stops=True,
)
