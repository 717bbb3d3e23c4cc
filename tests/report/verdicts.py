"""Verdicts written by hand, for the tests of what renders them."""

from __future__ import annotations

from msgspec.structs import replace

from ddpcheck.judging.standstill import Parted, Passed, Stand, Standstill
from ddpcheck.verdict.verdict import Accepted, CheckResult, RankResult, Verdict
from ddpcheck.vocabulary.model import CallSite, Finding

SCRIPT = """import torch

def train(model, batches):
    for x, y in batches:
        loss = loss_of(model.module(x), y)
        loss.backward()

        optimizer.step()
"""


def site(line=5, function="train", file="train.py"):
    return CallSite(file=file, line=line, function=function)


ERROR = Finding(
    check="reducer-coverage",
    severity="error",
    ranks=(0, 1),
    subject="the wrapper of Net",
    expected="a forward through the wrapper before every step",
    found="none before 12 of 12 steps",
    cause="the loss came from `.module`",
    advice="Call model(x), and not model.module(x).",
    step=0,
    count=12,
    where=site(),
    also=("gradient-sync", "parameter-sync"),
    proof=((0, site(6)), (1, site(6))),
)

WARNING = Finding(
    check="checkpoint-atomic-save",
    severity="warning",
    ranks=(0,),
    subject="/checkpoints/last.pt",
    expected="a save to leave the last checkpoint whole",
    found="torch.save onto a path that held one",
    advice="Save beside it, then os.replace().",
)


UNSEEN = ("batch-count", "no-hang", "rng-independence")
"""Checks that are in every verdict here; by themselves they have seen nothing."""


def results(**given):
    """Some checks: those that are named (with underscores) as given, a status and how often; and UNSEEN."""
    found = {c: CheckResult(status="not-checked", skipped_because="there was nothing to judge") for c in UNSEEN}
    for check, (status, checked) in given.items():
        found[check.replace("_", "-")] = CheckResult(status=status, checked=checked, of=36, unit="windows")
    return found


VIOLATED = Verdict(
    verdict="violated",
    world_size=2,
    checks=results(
        reducer_coverage=("violated", 12),
        gradient_sync=("violated", 12),
        parameter_sync=("violated", 12),
        checkpoint_atomic_save=("at-risk", 3),
        initial_broadcast=("held", 1),
    ),
    findings=(ERROR, WARNING),
    ranks=(RankResult(rank=0, exit_code=0, host="a"), RankResult(rank=1, exit_code=0, host="a")),
    command="train.py --epochs 3",
    versions={"ddpcheck": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
    seconds=8.125,
    steps=36,
    notes=("Of 36 optimizer steps, 12 were looked at in full.",),
    lines={"train.py:5": "loss = loss_of(model.module(x), y)", "train.py:6": "loss.backward()"},
)

AT_RISK = replace(
    VIOLATED,
    verdict="held",
    checks=results(checkpoint_atomic_save=("at-risk", 3), initial_broadcast=("held", 1)),
    findings=(WARNING,),
)

ACCEPTED = replace(
    AT_RISK,
    checks={
        **AT_RISK.checks,
        "reducer-coverage": CheckResult(status="at-risk", checked=12, of=36, unit="windows", accepted=1),
        "gradient-sync": CheckResult(status="at-risk", checked=12, of=36, unit="windows", accepted=1),
        "checkpoint-atomic-save": CheckResult(status="at-risk", checked=3, of=36, unit="windows", accepted=1),
    },
    findings=(),
    accepted=(
        Accepted(finding=ERROR, by="comment", source="comment in train.py:5", reason="the loss is the teacher's"),
        Accepted(finding=WARNING, by="baseline", source="known.json"),
    ),
)

HELD = replace(AT_RISK, checks=results(initial_broadcast=("held", 1)), findings=(), notes=())

NOTHING = replace(HELD, verdict="nothing-checked", checks=results(), steps=0)


def name(op):
    return {"ddp-gradients": "DDP's reduction of gradients", "ddp-buffers": "DDP's broadcast of buffers"}.get(op, op)


def passed(op, number, line):
    return Passed(name=name(op), op=op, group="world", number=number, where=site(line), code=f"line {line}  # why")


HUNG = replace(
    VIOLATED,
    verdict="hung",
    world_size=4,
    checks=results(batch_count=("violated", 1), no_hang=("violated", 1)),
    findings=(replace(ERROR, check="batch-count", ranks=(3,), also=("no-hang",)),),
    hang=Standstill(
        stands=(
            Stand(
                rank=0,
                state="waits",
                where=site(6),
                code="loss.backward()",
                waited=4.7,
                last=passed("ddp-buffers", 9, 5),
                pending=passed("ddp-gradients", 10, 6),
            ),
            *(
                Stand(rank=r, state="waits", where=site(8), waited=4.0 + r, pending=passed("barrier", 10, 8))
                for r in (1, 2)
            ),
            Stand(rank=3, state="ended", how="ended with exit code 0", last=passed("barrier", 9, 8)),
        ),
        parted=Parted(
            group="world",
            number=9,
            calls={
                0: passed("ddp-buffers", 9, 5),
                1: passed("all_gather", 9, 8),
                2: passed("all_gather", 9, 8),
                3: None,
            },
        ),
    ),
)
