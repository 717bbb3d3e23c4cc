"""Verdicts of every ending, and with every awkward text, for what holds of all of them in every format."""

from __future__ import annotations

from msgspec.structs import replace

from ddpcheck.verdict.verdict import RankResult
from ddpcheck.vocabulary.model import ModelPart
from tests.report.verdicts import AT_RISK, ERROR, HELD, HUNG, NOTHING, VIOLATED, WARNING, results, site

HOSTILE = "a]]>b %0A%25 <b>&amp;</b> `x` | [l](2) ::error::x ##[error]y \x1b[31m\x00\r\nsecond\udce9 \u202e end"
"""What would break a line, a command, a table, a link, XML, JSON or a terminal."""

NOWHERE = replace(ERROR, where=None, proof=())
OUTSIDE = replace(ERROR, where=site(7, file="/elsewhere/loop.py"), proof=((0, site(3, file="/elsewhere/loop.py")),))
AWKWARD = replace(
    ERROR,
    subject=HOSTILE,
    expected=HOSTILE,
    found=HOSTILE,
    cause=HOSTILE,
    advice=HOSTILE,
    module=ModelPart(path=HOSTILE, kind=HOSTILE, within=HOSTILE, set_by=site(5, HOSTILE, "sub/a b%,:\n::x.py")),
    where=site(5, HOSTILE, "sub\udce9/a b%,:\n::error::x.py"),
)
FAILED = replace(
    VIOLATED,
    verdict="failed",
    checks=results(rank_failure=("violated", 1)),
    findings=(replace(NOWHERE, check="rank-failure", subject="rank 1", also=()),),
    ranks=(RankResult(rank=0, signal=15, host="a"), RankResult(rank=1, exit_code=1)),
)

ENDINGS = {
    "held": HELD,
    "at-risk": AT_RISK,
    "violated": VIOLATED,
    "nothing-checked": NOTHING,
    "failed": FAILED,
    "hung": HUNG,
    "interrupted": replace(HELD, verdict="interrupted", interrupted_by=2),
    "interrupted-with-errors": replace(VIOLATED, verdict="interrupted", interrupted_by=15),
    "internal": replace(NOTHING, internal=("Traceback\n  a judge raised",)),
    "nowhere": replace(VIOLATED, findings=(NOWHERE, NOWHERE, WARNING)),
    "outside": replace(VIOLATED, findings=(OUTSIDE,)),
    "awkward": replace(VIOLATED, findings=(AWKWARD,), notes=(HOSTILE,), command=HOSTILE, internal=(HOSTILE,)),
    "awkward-reasons": replace(
        NOTHING, checks={check: replace(one, skipped_because=HOSTILE) for check, one in NOTHING.checks.items()}
    ),
    "no-rank": replace(NOTHING, world_size=0, ranks=(), command="", versions={"ddpcheck": None}),
    "many": replace(VIOLATED, findings=(ERROR,) * 13 + (WARNING,) * 11),
    "other-package": replace(VIOLATED, findings=(replace(ERROR, check="mylib/rates-agree"),)),
}
