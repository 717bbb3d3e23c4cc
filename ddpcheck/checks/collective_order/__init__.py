"""``collective-order``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import CALL_ENDS, CALLS, GROUPS, Check, Rule

CHECK = Check(
    holds="all ranks issue the same collectives in the same order",
    order=90,
    unit="call",
    rules=(
        Rule("different-collectives", "ranks call different collectives at the same place in their order"),
        Rule("mismatched-collective-arguments", "ranks call one collective with different shapes, types or operations"),
        Rule("different-root-ranks", "ranks call one collective with different root ranks"),
        Rule("crossed-calls", "a line's call meets another line's on a rank that makes the first line's elsewhere"),
        Rule("missing-collective", "a rank ends without a collective that other ranks call"),
        Rule("different-parameter-order", "ranks have the parameters of a DDP module in different orders"),
    ),
    told_at_end=True,
    follows=("batch-count", "reducer-coverage", "rank-failure", "no-hang"),
    rests_on=(*GROUPS, *CALLS, *CALL_ENDS),
)
