"""What is remembered of a model's modules: the lines that set their parameters, and nothing that keeps them alive."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.ddp import module_lines, parameter_names
from ddpcheck.probes.recording import recorder, user_lines


@pytest.fixture
def writer(tmp_path, monkeypatch):
    """A recorder of this process's own, and numbers for its file; parameters are noted as a rank's are."""
    monkeypatch.setattr(recorder, "_recorder", None)
    before = user_lines.numbering()
    user_lines.reset()
    made = recorder.begin(tmp_path, 10_000_000)
    yield made
    recorder.stop()
    user_lines.number_by(before)


@pytest.fixture(autouse=True)
def _noted():
    hook = nn.modules.module.register_module_parameter_registration_hook(parameter_names._note)
    yield
    hook.remove()


def described(writer: Any, module: nn.Module) -> ev.Modules:
    names = [name for name, _ in module.named_buffers()]
    found = module_lines.describe(writer, module, 0, dict(module.named_parameters()), names)
    assert found is not None
    return found


def line() -> int:
    """The caller's."""
    return sys._getframe(1).f_lineno


def at(writer: Any, number: int) -> list[int]:
    """The lines of a number, from the outermost one in."""
    folder = Folder(writer.folder)
    folder.read()
    (process,) = folder.processes.values()
    return [site.line for site in process.calls_to(number)]


class Helped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.at = helper(), line()


def helper() -> nn.Module:
    return nn.Linear(1, 1)


def test_the_lines_from_a_constructor_to_a_helper(writer):
    net = Helped()
    found = described(writer, net)
    assert [one.name for one in found.classes if one.users] == ["Helped"]
    assert set(found.parts) == {"", "inner"}
    assert at(writer, found.lines[0]) == [net.at, helper.__code__.co_firstlineno + 1]


def test_what_no_constructor_has_made(writer):
    net, here = nn.Linear(1, 1), line()
    found = described(writer, net)
    assert [at(writer, one) for one in found.lines] == [[here], [here]]


def test_a_shared_parameter_has_a_line_in_each_of_its_modules(writer):
    one, made = nn.Linear(1, 1), line()
    two = nn.Linear(1, 1)
    two.weight = one.weight
    tied = line() - 1
    assert at(writer, parameter_names.line_of(one.weight, one, "weight")) == [made]
    assert at(writer, parameter_names.line_of(one.weight, two, "weight")) == [tied]
    assert parameter_names.name_of(one.weight) == ("Linear.weight", True)
    assert parameter_names.line_of(one.weight, two, "bias") == ev.NO_SITE


def test_a_copy_was_set_by_no_line(writer):
    found = described(writer, copy.deepcopy(nn.Linear(1, 1)))
    assert found.lines == [ev.NO_SITE, ev.NO_SITE]


def test_a_model_that_is_too_large_is_left_out(writer, monkeypatch):
    monkeypatch.setattr(module_lines, "MOST", 3)
    parameters = dict(nn.Linear(1, 1).named_parameters())
    assert module_lines.describe(writer, nn.Linear(1, 1), 0, parameters, ()) is not None
    large = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert module_lines.describe(writer, large, 0, dict(large.named_parameters()), ()) is None


def test_modules_and_parameters_are_let_go():
    """Also one that was given to many modules, again and again."""
    net = nn.Sequential(*(nn.Linear(1, 1) for _ in range(20)))
    for one in net:
        one.weight = net[0].weight
    keys = {id(parameter) for parameter in net.parameters()}
    assert keys <= parameter_names._registered.keys()
    found = weakref.ref(net), weakref.ref(net[0].weight)
    del net, one
    gc.collect()
    assert [ref() for ref in found] == [None, None]
    assert not keys & parameter_names._registered.keys()


def test_modules_that_have_no_hash(writer):
    class Equal(nn.Module):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("nobody asks")

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

    net = Equal()
    set_by = Equal.__init__.__code__.co_firstlineno + 2
    assert at(writer, parameter_names.line_of(net.weight, net, "weight")) == [set_by]
