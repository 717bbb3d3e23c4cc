"""What a rank keeps on record while the test trains: its steps, and what was done with its wrappers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IN_A_RANK = """
import copy, gc, json, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpcheck import evidence as ev
from ddpcheck.probes import all_probes, in_ddp_tests
from ddpcheck.probes.ddp import model_state
from ddpcheck.probes.ddp.wrappers import wrapper_of
from ddpcheck.probes.optimizers import at_a_line, steps
from ddpcheck.probes.recording import recorder

dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
found = {}


def trained(model, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)  # which is gone when the training is over
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return model


# before it is watched
net = torch.nn.Linear(2, 1)
early = DistributedDataParallel(net)
known = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(known.parameters())
unknown = trained(torch.nn.Linear(2, 1))

in_ddp_tests.patch()
renamed = []
all_probes.warning_lines.rename = lambda: renamed.append(1)
in_ddp_tests.begin()
found["put in place again"] = len(renamed)

# steps
model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
found["before"] = steps.have_been_stepped(model.parameters())
alive = torch.optim.SGD(model.parameters(), lr=0.1)
trained(model, alive)
found["steps of one"] = sum(isinstance(one, ev.Step) for one in recorder.always().kept)
found["after"] = steps.have_been_stepped(model.parameters())
found["another"] = steps.have_been_stepped(other.parameters())
found["a copy"] = steps.have_been_stepped(copy.deepcopy(model).parameters())
part = torch.nn.Linear(2, 1)
of_part = torch.optim.SGD([part.bias], lr=0.1)
trained(part, of_part)
found["in part"] = [steps.have_been_stepped(part.parameters()), steps.are_stepped([part.weight])]
found["built before"] = steps.have_been_stepped(trained(known, optimizer).parameters())
found["optimizer gone"] = steps.have_been_stepped(trained(other).parameters())
found["stepped before"] = steps.have_been_stepped(unknown.parameters())
held = len(list(steps._watched))
trained(torch.nn.Linear(2, 1))
gc.collect()
found["gone"] = len(list(steps._watched)) - held

# the collectives of DDP itself
before = len(recorder.always().kept)
plain = DistributedDataParallel(torch.nn.Linear(2, 1))
buffered = DistributedDataParallel(torch.nn.BatchNorm1d(2))
for inputs in (torch.ones(2, 2), torch.zeros(2, 2), torch.ones(2, 2)):
    plain(inputs).sum().backward()
    buffered(inputs).sum().backward()
calls = [one for one in recorder.always().kept[before:] if isinstance(one, ev.Call)]
found["calls"] = [[c.op.removeprefix("ddp-") for c in calls if c.detail == f"wrapper {wrapper_of(one).number}"]
                  for one in (plain, buffered)]

# forwards that prepare the reducer
model = DistributedDataParallel(net)
found["built out of sight"] = wrapper_of(early) is None


def count(name, call):
    before = dict(wrapper_of(model).counts)
    call()
    found[name] = [wrapper_of(model).counts[one] - before[one] for one in ("forwards", "armed")]


def without_gradients():
    with torch.no_grad():
        model(torch.ones(1, 2))


def without_sync():
    with model.no_sync():
        model(torch.ones(1, 2))


count("forward", lambda: model(torch.ones(1, 2)))
count("two forwards", lambda: (model(torch.ones(1, 2)), model(torch.ones(1, 2))))
count("evaluation mode", lambda: model.eval()(torch.ones(1, 2)))
count("module alone", lambda: model.module(torch.ones(1, 2)))
count("no gradients", without_gradients)
count("no_sync", without_sync)

# what is handed over at a line: all that is kept, and the line
def line():
    # The kinds of its records, but for looks at memory; and its step.
    kept = len(recorder.always().kept)
    told = list(ev.Reader().feed(at_a_line.evidence(model, False)))
    told = told[1 + [type(one) for one in told].index(ev.AtLine):]
    found["kept"] = len(recorder.always().kept) == kept
    (step,) = [one for one in told if isinstance(one, ev.Step)]
    return [type(one).__name__ for one in told if not type(one).__name__.startswith("Look")], step


found["told"], step = line()
found["usage at the line"] = [step.usage[0].forwards, step.usage[0].armed]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trained(model, optimizer)
found["told of a step"], step = line()
found["place of the line"] = [step.number, step.rates]
# what is handed over of a model, and of what it is not
elsewhere = DistributedDataParallel(torch.nn.Linear(2, 1))
trained(elsewhere)
first = torch.optim.SGD(model.parameters(), lr=0.5)
trained(model, first)
trained(model, optimizer)


def handed_over(gradients=False):
    return list(ev.Reader().feed(at_a_line.evidence(model, gradients)))


told = handed_over()
begins = [type(one) for one in told].index(ev.AtLine)
found["wrappers"] = sorted({one.wrapper for one in told if isinstance(one, ev.Wrapped)})
found["own"] = [wrapper_of(model).number, wrapper_of(elsewhere).number]
found["rates at the line"] = [one.rates for one in told[begins:] if isinstance(one, ev.Step)]
found["without a backward"] = at_a_line.evidence(model, True).decode()
model(torch.ones(1, 2)).sum().backward()
found["with one"] = len(handed_over(gradients=True)) > 0


class Closed(torch.optim.SGD):
    # its groups are asked for in vain once it is closed
    closed = False

    @property
    def param_groups(self):
        if self.closed:
            raise RuntimeError("it is closed")
        return self.groups

    @param_groups.setter
    def param_groups(self, groups):
        self.groups = groups

    def __eq__(self, other):
        return NotImplemented

    __hash__ = None


closed = Closed(model.parameters(), lr=0.1)
trained(model, closed)
found["without a hash"] = [one.number for kept, one in steps.of_parameters(model.parameters()) if kept is closed]
closed.closed = True
found["fails"] = [one.text.strip().splitlines()[-1] for one in handed_over() if isinstance(one, ev.Defect)]
recorder.always().limit = len(recorder.always().kept)
found["full"] = at_a_line.evidence(model, False).decode()

recorder.use(None)
found["nothing kept"] = at_a_line.evidence(model, False).decode()
dist.destroy_process_group()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is known in a process that is a rank of its own, by what was done there."""
    store = str(tmp_path_factory.mktemp("rank") / "store")
    run = subprocess.run([sys.executable, "-c", IN_A_RANK, store], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])  # gloo prints, too


def test_probes_are_put_in_place_once(found):
    """What ranks are forked from has done it: in each of them it would cost more than the rest of a short test."""
    assert found["put in place again"] == 0


# --- steps


def test_a_model_is_stepped_by_its_optimizer(found):
    """Only a model whose parameters an optimizer has stepped has been stepped."""
    assert (found["before"], found["after"], found["another"]) == (False, True, False)


def test_one_stepped_parameter_is_enough(found):
    """A model of which an optimizer has some parameters only has been stepped, too."""
    assert found["in part"] == [True, False]


def test_a_model_whose_optimizer_is_gone_has_been_stepped(found):
    """Whoever trains in a function of its own leaves no optimizer behind."""
    assert found["optimizer gone"]


def test_an_optimizer_that_was_there_before_is_watched(found):
    """An optimizer made before the watch began is recorded all the same."""
    assert found["built before"]


def test_a_step_before_the_watch_is_unknown(found):
    """What happened before the watch is not on record."""
    assert not found["stepped before"]


def test_watching_twice_is_watching_once(found):
    """Probes that are put in place where ranks come from, and in a rank, tell of a step once."""
    assert found["steps of one"] == 1


def test_a_copy_has_not_been_stepped(found):
    """Steps are of parameters, not of values or names."""
    assert not found["a copy"]


def test_parameters_that_are_gone_are_forgotten(found):
    """A new parameter in the memory of an old one is not taken for it."""
    assert found["gone"] == 0


# --- wrappers


def test_only_forwards_that_prepare_the_reducer_arm_it(found):
    """Through the wrapper, with gradients, and outside of no_sync()."""
    assert found["built out of sight"]
    assert {name: found[name] for name in ("forward", "two forwards", "evaluation mode", "module alone")} == {
        "forward": [1, 1],
        "two forwards": [2, 2],
        "evaluation mode": [1, 1],
        "module alone": [0, 0],
    }
    assert (found["no gradients"], found["no_sync"]) == ([0, 0], [1, 0])


# --- a line of the test


def test_a_line_is_put_on_record_as_a_step(found):
    """Without an optimizer nobody's; all that was kept goes with it, and nothing of it is kept."""
    assert found["told"] == ["Optimizer", "Step", "Transfers"]
    assert found["usage at the line"] == [5, 4]
    assert (found["told of a step"], found["place of the line"]) == (["Step", "Transfers"], [1, [0.1]])
    assert found["kept"]


def test_without_records_nothing_is_handed_over(found):
    """A process that keeps none has nothing that explains anything."""
    assert found["nothing kept"] == ""


# --- the collectives of DDP itself


def test_a_forward_says_what_it_exchanges(found):
    """The second one has DDP's buckets laid out anew; where there are buffers to broadcast, each has these."""
    plain, buffered = found["calls"]
    assert plain == ["construct", "gradients", "buckets", "gradients", "gradients"]
    assert buffered == ["construct", *["buffers", "gradients"] * 3]


# --- what is handed over


def test_what_is_done_with_other_models_is_not_handed_over(found):
    """Nor is the optimizer that was stepped before another one of the same parameters."""
    own, other = found["own"]
    assert own in found["wrappers"]
    assert other not in found["wrappers"]
    assert found["rates at the line"] == [[0.1]]


def test_gradients_of_no_backward_are_of_no_step_to_come(found):
    """After a step, and before the next backward(), there is nothing that explains what .grad holds."""
    assert (found["without a backward"], found["with one"]) == ("", True)


def test_an_optimizer_needs_no_hash(found):
    """It is known by identity."""
    assert len(found["without a hash"]) == 1


def test_what_fails_is_handed_over_as_our_fault(found):
    """An optimizer that cannot be asked any more."""
    assert found["fails"] == ["RuntimeError: it is closed"]


def test_records_that_are_not_whole_are_not_handed_over(found):
    """What was not kept might be the cause."""
    assert found["full"] == ""
