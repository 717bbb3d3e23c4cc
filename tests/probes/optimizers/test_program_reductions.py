"""Which parameters and gradients a program's own collectives went over: known by their memory, and never by values."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.evidence import Call
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.optimizers import gradient_events, program_reductions


@pytest.fixture(autouse=True)
def _from_the_start():
    program_reductions.tell()  # nothing is recorded here: it drops what is remembered
    program_reductions._log.clear()
    program_reductions._others = program_reductions._of_models = 0


@pytest.fixture
def parameters():
    made = [torch.nn.Parameter(torch.zeros(3, 4)), torch.nn.Parameter(torch.zeros(6))]
    for parameter in made:
        parameter.grad = torch.zeros_like(parameter)
    return made


def over(tensor, op="all_reduce", number=1, name="tensors"):
    """A collective goes over a tensor."""
    call = Call(n=1, at=0.0, op=op, group="world", number=number, detail="", site=0)
    program_reductions.note(Exchange(op, {name: [tensor]}), call)


def sent(value):
    """A collective of objects sends this."""
    exchange = Exchange("all_gather", {"input_tensors": [torch.zeros(9, dtype=torch.uint8)]})
    exchange.op, exchange._named = "all_gather_object", {"obj": value}
    call = Call(n=1, at=0.0, op=exchange.op, group="world", number=1, detail="", site=0)
    program_reductions.note(exchange, call)


plain = program_reductions._of_plain


def carried(parameters, inside=False):
    window = program_reductions.Window()
    return [
        (one.place, one.of, one.alike, one.flat) for one in window._carried(plain(parameters), parameters, 0, inside)
    ]


def test_a_gradient_itself_or_a_view_of_it(parameters):
    """What shares its memory is it, whatever its shape; what has the same values in other memory is not."""
    over(parameters[0].grad.view(-1))
    over(parameters[1].grad.clone())
    assert carried(parameters) == [(0, "gradient", True, False)]


def test_what_no_parameter_fits_into_is_not_looked_for(parameters, monkeypatch):
    """A loss at every step costs no look at the storage of each parameter; a gradient of its size is found in it."""
    looked = []
    storage = program_reductions.readable_memory.storage
    over(torch.zeros(()))
    monkeypatch.setattr(
        program_reductions.readable_memory, "storage", lambda tensor: (looked.append(tensor), storage(tensor))[1]
    )
    assert (carried(parameters), looked) == ([], [])
    scale = torch.nn.Parameter(torch.ones(1))
    scale.grad = torch.ones(1)
    over(scale.grad)
    assert carried([*parameters, scale]) == [(2, "gradient", True, False)]


def test_a_buffer_that_gradients_are_views_of(parameters):
    """Each lies at its own place of it."""
    buffer = torch.zeros(18)
    parameters[0].grad, parameters[1].grad = buffer[:12].view(3, 4), buffer[12:]
    over(buffer)
    assert carried(parameters) == [(0, "gradient", True, False), (1, "gradient", True, False)]


def test_parameters_that_are_sent_to_one_rank_alone(parameters):
    """They have been exchanged, and are not the same on all ranks by that."""
    over(parameters[1].data, op="reduce")
    assert carried(parameters) == [(1, "parameter", False, False)]


def test_memory_that_is_used_again_is_not_the_same_tensor(parameters):
    """An activation that is gone may have lain where a gradient lies now."""
    for _ in range(50):
        activation = torch.zeros(6)
        over(activation)
        del activation
        parameters[1].grad = torch.zeros(6)
        assert carried(parameters) == []


@pytest.mark.parametrize(("sizes", "expected"), [
    ((18,), [0, 1]),  # all in one
    ((12, 6), [0, 1]),  # in buckets, in their order
    ((6, 12), [0, 1]),  # or from the last to the first
    ((5, 18), [0, 1]),  # beside something else
    ((12,), []),  # as long as one of them, but not as all
    ((12, 12), []),
    ((19,), []),
])  # fmt: skip
def test_gradients_side_by_side(parameters, sizes, expected):
    """A buffer, or some, into which all gradients fit to the element, after the last backward()."""
    for size in sizes:
        over(torch.zeros(size))
    found = carried(parameters)
    assert sorted(place for place, _, _, _ in found) == expected
    assert all((of, alike, flat) == ("gradient", True, True) for _, of, alike, flat in found)


@pytest.mark.parametrize(("sizes", "expected"), [
    ((18,), [0, 1]),  # two of them, and the third was forgotten
    ((11,), [1, 2]),  # from the last one on
    ((17,), []),  # the first and the last
    ((12,), []),  # as long as one alone, which may be anything
    ((18, 18), []),  # an activation of each layer
    ((12, 6), []),
])  # fmt: skip
def test_a_part_of_the_gradients_side_by_side(parameters, sizes, expected):
    """Several in their order, from one of the ends."""
    last = torch.nn.Parameter(torch.ones(5))
    last.grad = torch.ones(5)
    for size in sizes:
        over(torch.zeros(size))
    assert sorted(place for place, _, _, _ in carried([*parameters, last])) == expected


def test_gradients_that_are_sent_within_backward(parameters, monkeypatch):
    """A hook sends a bucket when it is full: before the backward() has ended that made it."""
    with monkeypatch.context() as within:
        within.setattr(gradient_events.Running, "depth", 1)
        over(torch.zeros(18))
    monkeypatch.setattr(program_reductions.BACKWARDS, "ended", program_reductions.BACKWARDS.ended + 1)
    assert [(place, of) for place, of, _, _ in carried(parameters)] == [(0, "gradient"), (1, "gradient")]


@pytest.mark.parametrize(("size", "expected"), [(11, [1, 2]), (18, [])])
def test_within_backward_gradients_are_there_from_the_last_one_on(parameters, monkeypatch, size, expected):
    """What has the size of the first ones is an activation's gradient."""
    last = torch.nn.Parameter(torch.ones(5))
    last.grad = torch.ones(5)
    with monkeypatch.context() as within:
        within.setattr(gradient_events.Running, "depth", 1)
        over(torch.zeros(size))
    monkeypatch.setattr(program_reductions.BACKWARDS, "ended", program_reductions.BACKWARDS.ended + 1)
    found = carried([*parameters, last])
    assert sorted(place for place, of, _, _ in found if of == "gradient") == expected


def test_parameters_side_by_side(parameters, monkeypatch):
    """What went between the step and the next backward() is of the parameters."""
    over(torch.zeros(18))
    monkeypatch.setattr(program_reductions.BACKWARDS, "ended", program_reductions.BACKWARDS.ended + 1)
    assert sorted(carried(parameters)) == [(0, "parameter", True, True), (1, "parameter", True, True)]


def test_what_else_went_between_ranks_is_counted(parameters):
    """A loss, counts and words are no part of a model; activations may be, and objects with tensors."""
    over(torch.zeros(()))
    over(torch.zeros(100, dtype=torch.int64))
    sent({"loss": 1.0, "words": ["a"]})
    over(parameters[0].grad)
    carried(parameters)
    while program_reductions._log:
        program_reductions._drop()
    assert (program_reductions._of_models, program_reductions._others) == (1, 0)
    over(torch.zeros(8))
    sent({"state": {"weight": torch.zeros(2)}})
    while program_reductions._log:
        program_reductions._drop()
    assert (program_reductions._of_models, program_reductions._others) == (1, 2)


@pytest.mark.parametrize(("op", "to_one"), [("reduce", True), ("all_reduce", False), ("gather", False)])
def test_a_sum_that_one_rank_gets(parameters, op, to_one):
    over(parameters[0].grad, op=op)
    (one,) = program_reductions.Window()._carried(plain(parameters), parameters, 0, False)
    assert (one.to_one, one.alike) == (to_one, op == "all_reduce")


def test_an_optimizer_that_begins_when_another_has_ended(parameters):
    """What was forgotten before its first step does not make its own exchange unknown."""

    class Written:
        def next(self):
            return {"n": 1, "at": 0.0}

        def write(self, record):
            self.record = record

    over(torch.zeros(9))
    program_reductions._drop()
    window, written = program_reductions.Window(), Written()
    over(parameters[0].grad)
    window.entered(parameters)
    window.left(written, 1, 0, parameters)
    assert (written.record.lost, [one.place for one in written.record.carried]) == (False, [0])


class Written:
    """A recorder that keeps what it is given."""

    def __init__(self):
        self.records = []

    def next(self):
        return {"n": len(self.records), "at": 0.0}

    def write(self, record):
        self.records.append(record)


def test_updates_of_the_size_of_gradients_are_none_of_them(parameters):
    """Gradients are reduced before the step, and within it owners send what they have made of them."""
    window, writer = program_reductions.Window(), Written()
    for parameter in parameters:
        over(parameter.grad)
    window.entered(parameters)
    for parameter in parameters:
        over(torch.zeros_like(parameter), op="broadcast")
    window.left(writer, 0, 0, parameters)
    (record,) = writer.records
    assert [(one.place, one.of, one.inside) for one in record.carried] == [
        (0, "gradient", False),
        (1, "gradient", False),
    ]


def test_what_this_rank_has_of_a_dtensor(parameters, monkeypatch):
    """A gradient's own part is known by its memory; it is looked for at the first steps, and then now and then."""
    monkeypatch.setattr(program_reductions.readable_memory, "is_dtensor", lambda tensor: tensor.dim() == 2)
    monkeypatch.setattr(program_reductions.readable_memory, "part", lambda tensor: tensor.view(-1)[:6])
    over(parameters[0].grad.view(-1)[:6])
    over(parameters[1].grad)
    found = program_reductions.Window()._carried(program_reductions._of_parts(parameters), (), 0, False)
    assert [(one.place, one.of, one.alike) for one in found] == [(0, "gradient", True)]
