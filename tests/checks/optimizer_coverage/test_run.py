"""What an optimizer holds, beside what the models have when it steps."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.judging.sharded_models import digest, stepped
from tests.judging.written import world


def holding(kinds, left, model=None, reduced=False):
    """An optimizer over tensors of these kinds, and the trainable parameters that are in none, on two ranks."""
    parameters = [
        ev.Parameter(name=f"p{place}", kind=kind, wrapper=0 if reduced else None, reduced=reduced, model=model)
        for place, kind in enumerate(kinds)
    ]
    described = {
        "optimizer": 0, "kind": "SGD", "site": 5, "parameters": parameters, "sharded": False,
        "values": b"".join(map(digest, kinds)),
    }  # fmt: skip
    record = {
        "optimizer": 0,
        "number": 0,
        "stale": list(range(len(kinds))),
        "names": list(left),
        "kinds": left.values(),
    }
    rank = [(ev.Optimizer, described), stepped(7, 0, kinds)]
    more = [(ev.LeftOut, {**record, "kinds": list(left.values())})] if left else []
    return world(*[[*more, *rank]] * 2)


def test_an_optimizer_of_a_models_own_parameters():
    """It is counted once for each rank."""
    judged = judge(holding(["float32[4]"], {}, model=0))
    assert (judged.checked, judged.findings) == (2, ())


def test_parameters_that_a_wrapper_reduces_are_a_models():
    """A module whose DTensors DDP was given as plain tensors has others in their place around its forward."""
    judged = judge(holding(["float32[4]"], {}, reduced=True))
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize(
    ("kinds", "left"),
    [
        (["float32[4, 2]", "float32[4]"], {"weight": "float32[4, 2]", "bias": "float32[4]"}),
        (["float32[4, 2]", "float32[4]"], {"_flat_param": "float32[12]"}),
    ],
)
def test_an_optimizer_of_what_no_module_has_any_more(kinds, left):
    """The same elements are in the model, and in no optimizer."""
    (found,) = judge(holding(kinds, left)).findings
    assert (found.severity, found.ranks, found.step) == ("error", (0, 1), 0)
    assert found.where is not None
    assert found.where.line == 5
    assert next(iter(left)) in found.found


@pytest.mark.parametrize("left", [{}, {"weight": "float32[3]"}, {"weight": "float32[3]", "other": "float32[5]"}])
def test_tensors_of_no_module_may_be_trained_on_purpose(left):
    """Prompts, latents, perturbations: what the model has besides has other elements."""
    judged = judge(holding(["float32[7]"], left))
    assert judged.findings == ()


# --- state of sharded parameters


def with_state(*wholes, locals_=((7, 8), (6, 8))):
    """Two ranks with parts of a parameter of 13 rows, each of which says what whole its state is of."""
    ranks = []
    for rank, (whole, local) in enumerate(zip(wholes, locals_, strict=True)):
        where = ev.Layout(ground="DTensor", shape=(13, 8), mesh=0, placements=("S0",), holders=(rank,), local=local)
        parameter = ev.Parameter(name="w", kind="float32[13, 8]", wrapper=None, reduced=False, model=0, layout=where)
        described = {"optimizer": 0, "kind": "Own", "site": 5, "parameters": [parameter], "sharded": False,
                     "values": digest("w")}  # fmt: skip
        told = {"optimizer": 0, "places": [0], "keys": ["momentum"], "wholes": [whole], "site": 7}
        ranks.append([(ev.Optimizer, described), *([(ev.StateOfAnotherWhole, told)] if whole else [])])
    return world(*ranks)


def test_state_that_is_made_of_each_ranks_own_part():
    """As if all parts were equally large."""
    (found,) = judge(with_state((14, 8), (12, 8))).findings
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 7)
    assert "[14, 8] for [13, 8]: w (momentum)" in found.found


def test_state_that_is_padded_on_the_last_rank():
    """Its part there is larger than the parameter's: nothing is said."""
    assert judge(with_state((14, 8), ())).findings == ()
    (found,) = judge(with_state((14, 8), (), locals_=((13, 8), (0, 8)))).findings
    assert found.ranks == (0,)
