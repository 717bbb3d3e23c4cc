"""``initial-values``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "at the first forward every parameter and buffer was written before it is read, copies agree, and no two "
        "shards, stages or experts of randomly filled weights are the same numbers"
    ),
    order=98,
    unit="model",
    rules=(
        Rule("unwritten-memory", "a parameter or buffer is used before anything was written to it"),
        Rule("shards-of-different-models", "ranks cut their shards from different parameters"),
        Rule("identical-shards", "shards of a random parameter hold the same numbers"),
        Rule("identical-stages", "stages of a pipeline begin with the same weights"),
    ),
    follows=("checkpoint-load-complete",),
    rests_on=("module calls", "parts", "sharding", "unwritten memory"),
)
