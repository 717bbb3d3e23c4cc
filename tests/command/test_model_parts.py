"""A finding about a parameter or a buffer leads to the line that has made it; where that is not known, to less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from running import run, script

PROGRAM = Path(__file__).parents[2] / "fixtures" / "cases" / "run" / "model_parts.py"
LINES = PROGRAM.read_text().splitlines()


def line(text, nth=0):
    return [number for number, one in enumerate(LINES, 1) if one.strip() == text][nth]


def told(tmp_path, forks, name):
    ran = run(tmp_path, "--nproc-per-node=2", PROGRAM, name, forks=forks)
    assert "ddpcheck itself" not in ran.err, ran.err
    return [one for one in ran.document["findings"] if one["subject"] == name.rpartition(" ")[2]], ran


LINEAR = "nn.Linear(4, 4)"
SET = [
    # the parameter, its module, its class, the user's around it, the code of the lines that have set it
    ("layers.1.q.bias", "layers.1.q", "Linear", "Attention", [f"self.q = {LINEAR}"]),
    ("layers.1.scale", "layers.1", "Attention", None, ["self.scale = nn.Parameter(torch.ones(4))"]),
    ("layers.0.shift", "layers.0", "Attention", None, ["self.shift = nn.Parameter(torch.zeros(4))"]),
    ("layers.1.mask", "layers.1", "Attention", None, ['self.register_buffer("mask", torch.ones(4))']),
    ("conv.weight", "conv", "Linear", "Net", ["self.conv = linear()", f"return {LINEAR}"]),
    ("named.left.weight", "named.left", "Linear", "Net", [f'self.named = nn.ModuleDict({{"left": {LINEAR}}})']),
    ("made.bias", "made", "Linear", "Net", ["self.made = make()", f"make = lambda: {LINEAR}  # noqa: E731"]),
    ("tail.0.weight", "tail.0", "Linear", "Net", [f"{LINEAR},"]),
    ("tail.1.running_mean", "tail.1", "BatchNorm1d", "Net", ["nn.BatchNorm1d(4),"]),
    ("first.bias", "first", "Linear", "Net", [f"shared = {LINEAR}"]),
    ("first.weight", "first", "Linear", "Net", [f"shared = {LINEAR}"]),
    ("tied.bias", "tied", "Linear", "Net", [f"self.tied = {LINEAR}"]),
    ("dynamic.inner.weight", "dynamic.inner", "Linear", "Anonymous", [f"self.inner = {LINEAR}"]),
    ("plain.0.weight", "plain.0", "Linear", "Plain", [f"self.plain = Plain({LINEAR})"]),
    ("head.weight", "head", "Linear", "Net", ["net.head = nn.Linear(4, 1)"]),
    ("of torch 0.weight", "0", "Linear", None, ["net = nn.Sequential(nn.Linear(4, 1))"]),
    ("alone weight", "", "Linear", None, ["net = nn.Linear(4, 1)"]),
]


@pytest.mark.parametrize(("name", "path", "kind", "within", "code"), SET, ids=[one[0] for one in SET])
@pytest.mark.few(3)
def test_the_line_that_sets_it(tmp_path, forks, name, path, kind, within, code):
    findings, ran = told(tmp_path, forks, name)
    assert findings, ran.err
    module = findings[0]["module"]
    assert (module["path"], module["class"], module["within"], module["defined"]) == (path, kind, within, None)
    assert [one["text"] for one in module["set_by"]] == code
    assert [one["line"] for one in module["set_by"]] == [line(text) for text in code]
    shown = " ".join(ran.err.split())
    assert f"module {path or f'the {kind}'}" in shown
    assert code[0] in shown
    assert f"model_parts.py:{line(code[0])}" in shown


LESS = [
    # a copy was set by no line of its own; what says no name says none; no parameter stands for it
    ("copied.weight", "copied", "Linear", "Net", "class Net(nn.Module):"),
    ("copied_attention.q.weight", "copied_attention.q", "Linear", "Attention", "class Attention(nn.Module):"),
    ("copied_attention.scale", "copied_attention", "Attention", None, "class Attention(nn.Module):"),
    ("layers.0.two", "layers.0", "Attention", None, "class Attention(nn.Module):"),
    ("tail.2.running_mean", "tail.2", "BatchNorm1d", "Net", "class Net(nn.Module):"),
]


@pytest.mark.parametrize(("name", "path", "kind", "within", "of"), LESS, ids=[one[0] for one in LESS])
@pytest.mark.few(2)
def test_where_no_line_is_known_the_constructor_of_the_class_is(tmp_path, forks, name, path, kind, within, of):
    findings, ran = told(tmp_path, forks, name)
    module = findings[0]["module"]
    assert (module["path"], module["class"], module["within"], module["set_by"]) == (path, kind, within, [])
    assert module["defined"] == {"file": str(PROGRAM), "line": line(of) + 1, "function": "__init__"}
    assert f"constructor is at {PROGRAM}:{line(of) + 1}" in " ".join(ran.err.split()).replace("- ", "-")


def test_a_right_program_says_nothing_of_modules(tmp_path, forks):
    ran = run(tmp_path, "--nproc-per-node=2", PROGRAM, "nothing", forks=forks)
    assert ran.document["findings"] == []
    assert re.search(r"^ +module  ", ran.err, flags=re.M) is None


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.register_buffer("mask", torch.ones(4))

    def forward(self, x):
        return self.line(x * self.mask)
"""
CHANGES = """
    import pathlib, net
    dist.init_process_group("gloo")
    inner = net.Net()
    if "changed" in sys.argv:
        source = pathlib.Path(net.__file__)
        dist.barrier()
        source.write_text(source.read_text().replace("import torch", "import torch\\n"))
    model = DistributedDataParallel(inner, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inner.mask += dist.get_rank()
    step(model, optimizer)
"""


@pytest.mark.long
@pytest.mark.parametrize("way", ["changed", "as it was"])
def test_a_source_that_was_changed_since(tmp_path, way):
    """What its constructor says now is not what has run."""
    (tmp_path / "net.py").write_text(NET)
    ran = run(tmp_path, "--nproc-per-node=2", script(tmp_path, CHANGES), way)
    (module,) = [one["module"] for one in ran.document["findings"] if one["subject"] == "mask"]
    first = NET.splitlines().index("    def __init__(self):") + 1
    if way == "changed":
        assert (module["set_by"], module["defined"]["line"]) == ([], first)
    else:
        assert ([one["line"] for one in module["set_by"]], module["defined"]) == ([first + 3], None)
