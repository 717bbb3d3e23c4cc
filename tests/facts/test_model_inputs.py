"""What goes into models: batches that are kept, and what all ranks are given, over evidence written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.facts import model_inputs
from ddpcheck.relations import once
from tests.judging.loaded import OWN, PLAIN, digest, drawn, loader, through
from tests.judging.own_reductions import BOTH, optimizer, stepped
from tests.judging.written import exchanged, world, wrapped


def given(number, content, wrapper=0, model=None, **more):
    fields = {"wrapper": wrapper, "model": model, "number": number, "digest": digest(content), "site": 30, **more}
    return ev.Inputs, fields


def replayed(later, epoch=0, exhausted=True, first=range(4), **of):
    """The deviations found for a pass of four batches and the forwards after it."""
    made = through(range(16), epoch=epoch, exhausted=exhausted)
    batches = [place for place, (kind, _) in enumerate(made) if kind is ev.Batch]
    for number, place in reversed([*enumerate(batches)]):
        made.insert(place + 1, given(number, first[number], loader=0, pass_=0, batch=number))
    more = [given(4 + n, content) for n, content in enumerate(later)]
    if of.pop("anew", False):  # contents are not looked at in each pass
        again = through(range(16), number=1, epoch=epoch)
        more = [*again[:-1], *more, again[-1]]
    return once.replays(model_inputs.replays(world(*[[loader(**of), *made, *more]] * 2)))


@pytest.mark.parametrize("of", [{}, {**OWN}], ids=["says that it shuffles", "has an epoch"])
def test_batches_of_a_pass_that_are_used_again(of):
    """One after the other, as they came, as often as was seen."""
    (found,) = replayed([0, 1, 2, 3, 0, 1], **of)
    assert (found.pattern, found.ranks, found.texts["forwards"], found.line.line) == ("replayed", (0, 1), 4, 20)


@pytest.mark.parametrize(("later", "more"), [
    ([0, 1], {}), ([1, 0, 3, 2], {}), ([4, 5, 6, 7], {}), ([0, 1, 2, 9], {}), ([5] * 4, {"first": [5] * 4}),
    ([0, 1, 2, 3], {"shuffle": False}), ([0, 1, 2, 3], {**OWN, "epoch": None}), ([0, 1, 2, 3], {"exhausted": False}),
    ([0, 1, 2, 3], {"anew": True}),
], ids=[
    "few", "another order", "others", "one other", "no batches", "unshuffled", "unknown", "broken off", "a pass",
])  # fmt: skip
def test_batches_that_are_not_kept(later, more):
    """Others, fewer, or the same from the loader itself; and orders that need not change."""
    assert replayed(later, **more) == []


def contributed(path, *numbers, model=0):
    """What a backward() has contributed to a parameter, and the step after it."""
    piece = ev.Piece(piece=0, model=model, path=path, shape=(4,), sizes=(4,), offset=(0,), layout=None, dtype="float32")
    rows = packed([np.resize(numbers, NUMBERS)])
    step = {"optimizer": 0, "number": 0, "pieces": [0], "places": [0], "digests": bytes(8), "sketches": rows}
    return [
        (ev.Pieces, {"pieces": [piece]}),
        (ev.Contributions, {"pieces": [0], "sketches": rows, "whole": [False], "versions": [1], "backward": 1,
                            "site": 3, "how": "backward"}),
        (ev.Values, {**step, "at_moment": "G", "backwards": 1}),
    ]  # fmt: skip


REDUCES = [optimizer(), exchanged(0, *BOTH), stepped("gh")]
SAME = [given(n, n, None, 0) for n in range(5)]


def shared(*each):
    return once.common_inputs(model_inputs.of(world(*each)))


def test_models_that_get_the_same_by_hand():
    """What each rank contributes has to be the same: it may take its part within the model."""
    mine = contributed("a", 1.0, 2.0)
    (found,) = shared([*REDUCES, *mine, *SAME], [*REDUCES, *mine, *SAME])
    assert (found.ranks, found.is_certain, found.texts) == ((0, 1), False, {"name": "model 0", "equal": 5, "of": 5})
    assert shared([*REDUCES, *mine, *SAME], [*REDUCES, *contributed("a", 2.0, 1.0), *SAME]) == []
    assert shared([*REDUCES, *SAME], [*REDUCES, *SAME]) == []


def test_models_that_get_the_same_through_a_wrapper():
    """It averages gradients: as certain as that the inputs change, and contribute the same."""
    same, mine = [given(n, n) for n in range(5)], contributed("a", 1.0, 2.0)
    (found,) = shared([wrapped(5), *mine, *same], [wrapped(5), *mine, *same])
    assert found.is_certain
    (found,) = shared([wrapped(5), *same], [wrapped(5), *same])
    assert not found.is_certain
    assert shared([wrapped(5), *same[:4]], [wrapped(5), *same[:4]]) == []
    parts = [[wrapped(5), *mine, *same], [wrapped(5), *contributed("a", 2.0, 1.0), *same]]
    assert shared(*parts) == []
    assert len(shared(*[[*own, drawn("a")] for own in parts])) == 1


def test_parameters_of_no_module_may_make_the_difference():
    """What is contributed to them is not known."""
    mine = contributed("a", 1.0, 2.0)
    table = ev.Piece(piece=1, model=-1, path="1", shape=(4,), sizes=(4,), offset=(0,), layout=None, dtype="float32")
    two = {"pieces": [0, 1], "places": [0, 1], "digests": bytes(16), "sketches": packed([np.ones(NUMBERS)] * 2)}
    mine[0] = (ev.Pieces, {"pieces": [*mine[0][1]["pieces"], table]})
    mine[2] = (ev.Values, {**mine[2][1], **two})
    assert shared([*REDUCES, *mine, *SAME], [*REDUCES, *mine, *SAME]) == []


def test_a_loader_that_is_gone_through_says_more():
    """Its passes are judged by what they give."""
    assert replayed([], **PLAIN) == []
