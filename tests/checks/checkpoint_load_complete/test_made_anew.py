"""Optimizers that were given state, and those that step."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.run import judge
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.written import loaded, world


def of_file(*after, number=0, kind="SGD"):
    return judge(world(*[[loaded("optimizer", 20, optimizer=number, kind=kind), *after]] * 2)).findings


def test_another_one_steps():
    (found,) = of_file(optimizer(1), stepped("gh", optimizer=1))
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 20)
    assert "which was built after this load" in found.found
    assert found.proof[0][1].line == 4


@pytest.mark.parametrize("after", [
    [],
    [optimizer(0), stepped("gh")],
    [optimizer(0), stepped("gh"), optimizer(1), stepped("gh", optimizer=1)],
    [loaded("optimizer", 21, optimizer=1, kind="SGD"), optimizer(1), stepped("gh", optimizer=1)],
    [optimizer(1, kind="Muon"), stepped("gh", optimizer=1)],
    [optimizer(1, begun=True), stepped("gh", optimizer=1)],  # moments were carried over by hand
])  # fmt: skip
def test_what_goes_on_with_it(after):
    assert of_file(*after) == ()


def test_an_optimizer_that_is_put_back():
    """It has served, as in a search for a rate; the training begins with another one on purpose."""
    tried = [optimizer(0), stepped("gh"), loaded("optimizer", 20, optimizer=0, kind="SGD")]
    assert judge(world(*[[*tried, optimizer(1), stepped("gh", optimizer=1)]] * 2)).findings == ()


def of_torch(made, *after, role="moment"):
    """A state dict that torch.distributed.checkpoint has filled."""
    form = (ev.StateForm, {"form": 0, "entries": [ev.Entry(name="m", kind="float32[4]", role=role)]})
    read = (ev.StateRead, {"how": "dcp.load", "kind": "", "path": "c", "site": 20, "number": 0, "form": 0,
                           "digests": b"", "sums": b"", "made": made})  # fmt: skip
    return judge(world(*[[form, read, *after]] * 2)).findings


def test_loaded_in_place_and_made_anew():
    """The moments of the optimizer that there was are filled; it is not the one that goes on."""
    (found,) = of_torch(1, optimizer(1), stepped("gh", optimizer=1))
    assert found.where.line == 20


@pytest.mark.parametrize("given", [
    (2, optimizer(1), stepped("gh", optimizer=1)),
    (1, loaded("optimizer", 21, optimizer=1), optimizer(1), stepped("gh", optimizer=1)),
    (1,),
])  # fmt: skip
def test_loaded_in_place(given):
    assert of_torch(*given) == ()


def test_parameters_alone():
    assert of_torch(1, optimizer(1), stepped("gh", optimizer=1), role="parameter") == ()
