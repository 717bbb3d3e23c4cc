"""Which evaluations are looked at: the models of a line apart, and ever fewer of a line that makes new ones."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.ddp import module_calls
from ddpcheck.probes.recording import recorder


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """Evaluate models as a program in a group would, after so many steps; what was put down."""
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(module_calls, "_seen", {})
    steps = [0]
    monkeypatch.setattr(module_calls, "steps_so_far", lambda: steps[0])
    module_calls.watch()
    recorder.begin(tmp_path, 1 << 22)

    def evaluated(models, after, x=0.0):
        steps[0] = after
        with torch.no_grad():
            for model in models:
                model.eval()(torch.full((1, 2), x))

    def put_down(kind=ev.Evaluated):
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(kind)

    yield evaluated, put_down
    recorder.stop()


def test_every_model_that_a_line_evaluates_is_looked_at(evaluate):
    """A model, and its average: at each evaluation both, and neither twice after the same step."""
    evaluated, put_down = evaluate
    models = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    for turn in (1, 1, 2):
        evaluated(models, turn)
    found = [(one.module, one.number) for one in put_down()]
    first, second = found[0][0], found[1][0]
    assert found == [(first, 1), (second, 1), (first, 2), (second, 2)]
    assert first != second


def test_a_line_that_makes_a_model_for_every_evaluation(evaluate):
    """Copies are looked at as rarely as a model that is evaluated as often; the model among them as before."""
    evaluated, put_down = evaluate
    model = torch.nn.Linear(2, 1)
    for turn in range(100):
        evaluated([model, torch.nn.Linear(2, 1)], turn)
    found = put_down()
    of_model = [one for one in found if one.module == found[0].module]
    assert [one.number for one in of_model] == [*range(9), 16, 32, 64]
    assert len(found) - len(of_model) == 7 + 4  # the second to eighth model of the line, and the powers of two


@pytest.mark.parametrize(("inputs", "after", "said"), [
    ([0.0] * 20, 0, False),  # the time that a forward takes
    ([float(n) for n in range(7)], 0, False),
    ([float(n) for n in range(20)], 0, True),
    ([float(n) for n in range(20)], 1, False),  # once training has begun, evaluations are compared as such
])  # fmt: skip
def test_an_evaluation_on_many_inputs_is_no_dry_run(evaluate, inputs, after, said):
    """It is said once, at the line."""
    evaluated, put_down = evaluate
    model = torch.nn.Linear(2, 1)
    for x in inputs:
        evaluated([model], after, x)
    found = put_down(ev.EvaluatedOnData)
    assert [(one.module, one.site) for one in found] == [(one.module, one.site) for one in put_down()[:1]] * said


def test_an_evaluation_through_a_wrapper(evaluate, monkeypatch):
    """The module inside is what is looked at, without the buffers that the wrapper may be about to broadcast."""

    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    monkeypatch.setattr(module_calls, "DistributedDataParallel", Wrapper)
    evaluated, put_down = evaluate
    evaluated([Wrapper(torch.nn.BatchNorm1d(2))], 0)
    (one,) = put_down()
    assert (one.kind, one.parameters.names, one.buffers.names) == ("BatchNorm1d", ["weight", "bias"], [])


def test_the_modules_inside_of_another_ask_no_device(evaluate, monkeypatch):
    """Where CUDA is in use the question takes a microsecond, and a model may have thousands of modules."""
    evaluated, _ = evaluate
    asked = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(asked.append(1)))
    evaluated([torch.nn.Sequential(torch.nn.Linear(2, 2))], 0)
    few = len(asked)
    asked.clear()
    evaluated([torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(100)))], 0)
    assert few > 0
    assert len(asked) == few
