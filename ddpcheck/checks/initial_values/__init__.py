"""``initial-values``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "at the first forward every parameter and buffer was written before it is read, copies agree, and no two "
        "shards, stages or experts of randomly filled weights are the same numbers"
    ),
    order=98,
    follows=("checkpoint-load-complete",),
    rests_on=("module calls", "parts", "sharding", "unwritten memory"),
)
