"""Parameters that were loaded into copies, and shards that stayed as they were cut."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.run import judge
from tests.judging.own_reductions import stepped
from tests.judging.sharded_models import layout
from tests.judging.written import loaded, world


def trained(*between, live=False, cut=b"whole...", role="parameter", first=True, before=(), digest=b""):
    """A state dict is filled, something may happen, the model is called for the first time, and a step is made."""
    entry = ev.Entry(name="model.w", kind="float32[16]", role=role, of="w", live=live)
    form = (ev.StateForm, {"form": 0, "entries": [entry]})
    read = (ev.StateRead, {"how": "dcp.load", "kind": "", "path": "c", "site": 20, "number": 0, "form": 0,
                           "digests": b"", "prints": b"", "made": 9})  # fmt: skip

    def of(rank):
        held = ev.Held(name="w", kind="float32[16]", layout=layout(rank, (2,), ("S0",)), cut_from=cut, digest=digest)
        model = (ev.Model, {"model": 0, "kind": "Net", "site": 25, "held": [held]})
        return (
            [*before, form, read, *between, model, stepped("g")]
            if first
            else [model, form, read, *between, stepped("g")]
        )

    return judge(world(of(0), of(1))).findings


def test_copies_alone():
    """Nothing was written to the shards since they were cut, and that was before."""
    (found,) = trained()
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("warning", (0, 1), "w", 20)
    assert "loaded into copies" in found.found


@pytest.mark.parametrize(("between", "more"), [
    ([loaded("module", 21)], {}),
    ([(ev.Parallelised, {"how": "fully_shard", "site": 22})], {}),  # what is cut now may be the copies
    ([], {"live": True}),  # the model's own tensors were filled
    ([], {"cut": b""}),  # something was written to them
    ([], {"role": "moment"}),
    ([], {"first": False}),  # of a model that was called before, nobody knows
    ([], {"before": [loaded("module", 19)]}),  # the model has its values from elsewhere
])  # fmt: skip
def test_what_has_reached_the_model(between, more):
    assert trained(*between, **more) == ()


@pytest.mark.parametrize(("digest", "found"), [(b"as saved", 0), (b"other...", 1)])
def test_a_checkpoint_that_is_tried_out(digest, found):
    """It holds what the model has anyway."""
    saved = ev.Entry(
        name="model.w", kind="float32[8]", role="parameter", of="w", live=True, layout=layout(0, (2,), ("S0",))
    )
    before = [
        (ev.StateForm, {"form": 1, "entries": [saved]}),
        (ev.StateSaved, {"save": 0, "how": "dcp.save", "path": "c", "site": 18, "number": 0, "form": 1,
                         "digests": b"as saved", "prints": bytes(16), "ranks": (0, 1)}),
    ]  # fmt: skip
    assert len(trained(before=before, digest=digest)) == found
