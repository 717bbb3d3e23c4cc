"""Judges of calls, hangs and failures over evidence of any kind: thinned, torn, out of order; they never raise."""

from __future__ import annotations

import random

from ddpcheck import evidence as ev
from ddpcheck.judging import deadlock
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.world import Moment, World
from tests.judging.judged import run_judged
from tests.judging.written import call, ended, raised, rank, step, wrapped

OPS = ["barrier", "all_reduce", "broadcast", "gather", "ddp-gradients", "ddp-buffers", "ddp-unfinished", "send", "recv",
       "irecv", "wait", "join", "new_group"]  # fmt: skip
GROUPS = ["world", "world", "0,1#1", "1,2#1", "?"]
CHECKS = ("rank-failure", "no-hang", "collective-order")
MESSAGES = ["Connection closed by peer", "Timed out waiting 20ms for recv", "EADDRINUSE", "no", ""]


def anything(draw):
    """One record of a kind that these judges read, with whatever in it."""
    line, small = draw.randrange(120), draw.randrange(6)
    made = draw.choice(
        ["call"] * 6 + ["pulse"] * 2 + ["raised", "ended", "left", "pass", "batch", "over", "step", "wrapped"]
    )
    if made == "call":
        more = {"peer": draw.choice([None, 0, 1, 7]), "waits": draw.random() < 0.8, "joined": draw.random() < 0.1}
        of = draw.choice([None, None, 3, 900])
        detail = draw.choice(["", "x", "ranks 0,9"])
        return call(small, line, draw.choice(OPS), group=draw.choice(GROUPS), detail=detail, of=of, **more)
    if made == "pulse":
        pending = draw.choice([None, 2, 5, 9, 400])
        return ev.Pulse, {"site": line, "doing": draw.choice(["f", "_shutdown"]), "pending": pending, "since": 0.0}
    if made == "raised":
        return raised(draw.choice(MESSAGES), line, lost_peer=draw.random() < 0.5)
    if made == "ended":
        return ended(how=draw.choice(["exit", "os._exit", "exception"]), code=draw.choice([None, 0, 3]))
    if made == "left":
        return ev.Left, {"site": line}
    if made == "pass":
        return ev.Pass, {"loader": small, "number": 0, "site": line, "epoch": 0, "base_seed": None, "grad": True}
    if made == "batch":
        return ev.Batch, {"loader": small, "pass_": 0, "number": small, "indices": b"", "prints": b"", "labels": b""}
    if made == "over":
        return ev.PassEnded, {"loader": small, "number": 0, "batches": small, "samples": 0,
                              "exhausted": draw.random() < 0.7, "order": "", "backwards": 0}  # fmt: skip
    return step(line) if made == "step" else wrapped(line, order=draw.sample(["a", "b", "c"], 3))


def test_no_evidence_makes_a_judge_raise():
    """Whatever ranks have left behind, each check has its verdict, the same one when asked again."""
    for seed in range(400):
        draw = random.Random(seed)
        size = draw.choice([2, 3])
        ranks = []
        for number in range(size):
            records = [anything(draw) for _ in range(draw.randrange(12))]
            code, signal = draw.choice([(0, None), (1, None), (None, 15), (None, 9), (None, 11), (None, None)])
            ranks.append(rank(number, records, size, exit_code=code, signal=signal))
        if draw.random() < 0.2:
            ranks.pop()
        over = World(ranks, size)
        said = [(judged.check, judged.findings) for judged in run_judged(over, *CHECKS)]
        assert [check for check, _ in said] == [*CHECKS]
        assert sum(len(found) for check, found in said if check != "collective-order") <= 1
        again = World(ranks, size)
        assert said == [(judged.check, judged.findings) for judged in run_judged(again, *CHECKS)]
        deadlock.certain(World(ranks, size, now=Moment(at=100.0)))
        Order(over).enforced(0, 3, 1, 4)
