"""The judge of buffer-sync in a run: what is done about buffers that a wrapper was told not to broadcast."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync.run import judge
from tests.judging.loaded import digest
from tests.judging.written import ended, world, wrapped

NAMES = ["norm.running_mean"]
BUILT, EVALUATED = 30, 40


def rank(value, **more):
    """A rank that evaluates with this buffer."""
    buffers = ev.Tensors(names=NAMES, digests=digest("same"))
    given = {"buffers": buffers, "buffer_owners": ["BatchNorm1d"], "broadcast_buffers": False, **more}
    synced = {"wrapper": 0, "moment": "evaluation", "number": 0, "digests": digest(value), "site": EVALUATED}
    return [wrapped(BUILT, **given), (ev.Synced, synced), ended()]


def told(**more):
    (finding,) = judge(world(rank("a", **more), rank("b", **more))).findings
    return finding


def test_the_flag_is_what_is_left_out_first():
    """The line that sets it is shown."""
    finding = told()
    assert finding.advice.startswith("Leave out broadcast_buffers=False")
    assert (finding.where.line, [line.line for _, line in finding.proof]) == (EVALUATED, [BUILT])
    assert judge(world(rank("a"), rank("a"))).findings == ()


@pytest.mark.parametrize(
    ("more", "offered"),
    [
        ({"devices": ["cuda:0"]}, True),
        ({"devices": ["cpu"]}, False),
        ({"devices": ["cuda:0"], "buffer_owners": ["Codebook"]}, False),
    ],
    ids=["on a GPU", "on the CPU", "no batch norm"],
)
def test_sync_batch_norm_is_offered_where_it_can_work(more, offered):
    """It takes inputs on GPUs alone, and is for batch norms."""
    assert ("convert_sync_batchnorm" in told(**more).advice) is offered


@pytest.mark.parametrize("buffers", [ev.Tensors(), ev.Tensors(names=["b"], digests=ev.UNSEEN)], ids=["none", "unseen"])
def test_an_evaluation_without_buffers_compares_nothing(buffers):
    """Whatever is known of the parameters."""
    parameters = ev.Tensors(names=["w"], digests=digest("w"))
    fields = {"kind": "Net", "number": 0, "site": EVALUATED, "parameters": parameters, "buffers": buffers}
    judged = judge(world(*[[(ev.Evaluated, fields)]] * 2))
    assert (judged.checked, judged.findings) == (0, ())
    assert "saw no buffer" in judged.skipped_because
