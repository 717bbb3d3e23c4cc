"""Renamed evidence: names that change, names that stay, and a table that covers every field."""

from __future__ import annotations

import re
from copy import deepcopy

import msgspec
import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process
from tests.recordings import field_table, renaming
from tests.recordings.renaming import renamed

NUMBERS = {"n": 1, "at": 1.0}
BODY = "def main():\n    train(model)\n"


def _parameter(name, path="", **more):
    return ev.Parameter(name=name, kind="float32[3, 4]", wrapper=None, reduced=False, path=path, **more)


def _optimizer(*parameters, kind="SGD"):
    return ev.Optimizer(
        **NUMBERS, optimizer=0, kind=kind, site=1, parameters=list(parameters), sharded=False, values=b""
    )


def _site(function="main", number=1, **more):
    return ev.Site(**NUMBERS, id=number, file="train.py", line=2, function=function, text="train(model)", **more)


def _form(*names):
    entries = [ev.Entry(name=name, kind="float32[2]", of=name.partition(" ")[0]) for name in names]
    return ev.StateForm(**NUMBERS, form=0, entries=entries)


def _process(*records):
    process = Process("rank")
    process.add(records)
    return process


def _records(*records):
    """The records of one process, under other names."""
    return renamed([_process(*records)])[0].records


def _names(*names):
    return [entry.name for entry in _records(_form(*names))[0].entries]


# --- names


def test_parts_of_names_are_replaced_one_by_records():
    first, second, third = _names("layers.3.attn.q", "layers.4.attn.q", "layers.3.attn")
    assert re.fullmatch(r"qa\d+\.3\.qa\d+\.qa\d+", first)
    assert second == first.replace(".3.", ".4.")
    assert third == first.rpartition(".")[0]


def test_different_names_stay_different():
    names = [f"{a}.{b}" for a in ("expert", "norm", "bias", "Expert") for b in ("weight", "bias", "qa000", "qa001")]
    assert len(set(_names(*names))) == len(names)


def test_new_names_hold_no_word():
    (name,) = _names("experts.norm_1.accum_steps.bias")
    assert re.fullmatch(r"(qa\d+\.){3}qa\d+", name)


def test_one_name_is_the_same_in_every_process_and_record():
    model = ev.Model(**NUMBERS, model=0, kind="Net", site=1, held=[ev.Held(name="fc.weight", kind="float32[2]")])
    first, second = renamed([
        _process(_optimizer(_parameter("fc.weight", "fc.weight"))),
        _process(model, _form("model.fc.weight"), _optimizer(_parameter("head.weight"), _parameter("fc.weight"))),
    ])  # fmt: skip
    name = first.records[0].parameters[0].name
    held, form, optimizer = second.records
    assert first.records[0].parameters[0].path == name
    assert held.held[0].name == name
    assert form.entries[0].name.endswith(f".{name}")
    assert optimizer.parameters[1].name == name
    assert optimizer.parameters[0].name.partition(".")[2] == name.partition(".")[2]


def test_the_same_evidence_gets_the_same_names():
    records = [_form("layers.0.attn", "epoch"), _optimizer(_parameter("layers.0.attn"))]
    assert _records(*records) == _records(*deepcopy(records))


@pytest.mark.parametrize("name", [
    "0.1", "module.0", "_orig_mod.2", "_fsdp_wrapped_module._flat_param", "parameter 7", "state.0.exp_avg",
    "state.3.step", "param_groups.0.lr", "",
])  # fmt: skip
def test_names_of_torch_stay(name):
    assert _names(name) == [name]


def test_keys_of_torch_stay_where_torch_has_set_them():
    step, outside = _names("optimizer.state.0.step", "step")
    assert step.endswith(".state.0.step")
    assert outside.startswith("qa")
    (grown,) = _records(ev.GroupCounts(**NUMBERS, optimizer=0, number=1, grown={"0 step": 3, "1 lr": 1}))
    assert [key.partition(" ")[0] for key in grown.grown] == ["0", "1"]
    assert "0 step" not in grown.grown
    assert grown.grown["1 lr"] == 1


def test_a_name_that_is_a_class_elsewhere():
    """``filter`` and ``device`` are classes of Python and torch, and common names of attributes."""
    assert all(name.startswith("qa") for name in _names("filter", "device"))


def test_a_moment_has_a_path_and_a_key():
    (name,) = _names("fc.weight exp_avg")
    assert re.fullmatch(r"qa\d+\.qa\d+ exp_avg", name)


def test_classes_of_torch_stay_and_those_of_the_user_do_not():
    (optimizer,) = _records(_optimizer(_parameter("Linear.weight"), _parameter("Head.weight"), kind="Lookahead"))
    first, second = (parameter.name.partition(".")[0] for parameter in optimizer.parameters)
    assert first == "Linear"
    assert {second[:2], optimizer.kind[:2]} == {"qa"}


def test_classes_that_torch_has_made_of_others():
    (optimizer,) = _records(_optimizer(*(_parameter(f"{kind}.weight") for kind in ("FSDPLinear", "FSDPHead", "Head"))))
    first, second, third = (parameter.name.partition(".")[0] for parameter in optimizer.parameters)
    assert (first, second) == ("FSDPLinear", f"FSDP{third}")


def test_classes_of_a_library_stay():
    classes = [ev.PartClass(name="LlamaAttention", users=False), ev.PartClass(name="Net", users=True)]
    (modules,) = _records(ev.Modules(**NUMBERS, wrapper=0, classes=classes, parts={"": 1, "attn.q": 0}, lines=[]))
    assert modules.classes[0] == classes[0]
    assert modules.classes[1].name.startswith("qa")
    assert re.fullmatch(r"qa\d+\.qa\d+", list(modules.parts)[1])


def test_dimensions_of_a_mesh():
    (mesh,) = _records(ev.Mesh(**NUMBERS, mesh=0, names=("dp", "tp"), shape=(1, 2), ranks=(0, 1), device="cpu"))
    assert len(set(mesh.names)) == 2
    assert all(name.startswith("qa") for name in mesh.names)
    assert mesh.device == "cpu"


# --- the program


def test_sources_are_empty():
    (new,) = renamed([_process(_site(first=1, body=BODY))])
    (site,) = new.records
    assert (site.text, site.body) == ("", "")
    assert (site.file, site.line, site.first) == ("train.py", 2, 1)
    assert new.texts() == []
    assert new.line(1) == ""
    assert new.where(1).function == site.function


@pytest.mark.parametrize("function", ["<module>", "<lambda>", "forward", "__getattr__"])
def test_functions_that_no_user_names(function):
    (site,) = _records(_site(function))
    assert site.function == function


def test_functions_of_the_user():
    (site,) = _records(_site("Net.main.<locals>.save"))
    assert re.fullmatch(r"qa\d+\.qa\d+\.<locals>\.qa\d+", site.function)


def test_the_function_that_runs():
    """It is the user's if it is the function of the line; otherwise it is a library's."""
    pulse = ev.Pulse(**NUMBERS, site=1, doing="main", pending=None)
    site, first, second = _records(_site(), pulse, msgspec.structs.replace(pulse, doing="join_all_non_daemon_threads"))
    assert first.doing == site.function != "main"
    assert second.doing == "join_all_non_daemon_threads"


def test_an_exception():
    text = (
        'Traceback (most recent call last):\n  File "/job/train.py", line 2, in main\n    train(model)\n'
        '  File "/lib/torch/nn.py", line 9, in load_state_dict\n    raise RuntimeError(\n'
        'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): "fc.weight".'
    )
    message = text.rpartition("\n")[2].partition(" ")[2]
    model = ev.Model(**NUMBERS, model=0, kind="Net", site=1, held=[ev.Held(name="fc.weight", kind="float32[2]")])
    raised = ev.Raised(**NUMBERS, kind="RuntimeError", message=message, text=text, site=1, lost_peer=False)
    site, model, new = _records(_site(), model, raised)
    assert new.kind == "RuntimeError"
    assert new.message == message.replace("Net", model.kind).replace("fc.weight", model.held[0].name)
    assert "train(model)" not in new.text
    assert f'File "/job/train.py", line 2, in {site.function}\n' in new.text
    assert 'File "/lib/torch/nn.py", line 9, in load_state_dict\n' in new.text


def test_an_exception_of_the_program_has_a_name_of_the_users():
    raised = ev.Raised(**NUMBERS, kind="Broken", message="", text="__main__.Broken: x", site=1, lost_peer=False)
    (new,) = _records(raised)
    assert new.kind.startswith("qa")
    assert new.text == f"__main__.{new.kind}: x"


@pytest.mark.parametrize(("name", "pattern"), [
    ("Thread-3 (save)", r"Thread-3 \(qa\d+\)"),
    ("ThreadPoolExecutor-0_0", r"ThreadPoolExecutor-0_0"),
    ("asyncio_0", r"asyncio_0"),
    ("saver", r"qa\d+"),
])  # fmt: skip
def test_threads(name, pattern):
    (started,) = _records(ev.Started(**NUMBERS, kind="thread", name=name, pid=None, site=1))
    assert re.fullmatch(pattern, started.name)


# --- what stays


def test_facts_stay():
    step = ev.Step(
        **NUMBERS, optimizer=0, number=3, site=1, gradients=b"12345678", parameters=b"", whole=True,
        state={"exp_avg": b"1"}, rates=[0.1], scale=None, usage=[], backwards=1, backward_site=1, collectives=0,
    )  # fmt: skip
    call = ev.Call(**NUMBERS, op="all_reduce", group="0,2#1", number=4, detail="float32[3, 4] sum", site=1)
    assert _records(step, call) == [step, call]


def test_the_evidence_that_is_given_stays():
    process = _process(_site(body=BODY, first=1), _optimizer(_parameter("fc.weight")))
    process.gap, process.taken = "its file has been cut off", 7
    before = list(process.records)
    (new,) = renamed([process])
    assert process.records == before
    assert process.line(1) == "train(model)"
    assert (new.gap, new.taken, new.name) == (process.gap, 7, "rank")
    assert new.of(ev.Optimizer) != process.of(ev.Optimizer)


def test_nothing_at_all():
    assert renamed([]) == []
    assert _records() == []


# --- the tables


def test_every_field_with_text_is_in_the_table():
    """If a record gets a new field with text, add its rule to ``FIELDS``."""
    assert {kind: set(fields) for kind, fields in field_table.FIELDS.items()} == renaming.text_fields()


def test_every_dictionary_is_in_the_table():
    assert {kind: set(fields) for kind, fields in field_table.KEYS.items()} == renaming.keyed_fields()
