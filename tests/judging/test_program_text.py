"""What is read from the program's text."""

from __future__ import annotations

import ast

from ddpcheck import evidence as ev
from ddpcheck.judging import program_text
from tests.judging.written import rank

SCRIPT = """class Net:
    def forward(self, x):
        self.on = False
        return checkpoint(self.block, x, use_reentrant=True)

setattr(net, "on", True)
"""
METHOD = """    def forward(self, x):
        self.other = x
        return torch.utils.checkpoint.checkpoint(self.block, x)
"""


def process(*texts):
    """A process with the texts of these functions on record: file, first line, name and text."""
    sites = []
    for number, (file, first, name, body) in enumerate(texts, 100):
        fields = {"id": number, "file": file, "line": first, "function": name, "text": "", "first": first}
        sites.append((ev.Site, {**fields, "body": body}))
    return rank(0, sites).process


def told(found):
    return [str(one.where) for one in found]


def test_the_script_is_known_as_a_whole():
    """With its functions, and each line once, though a function of it is on record as well."""
    own = process(("train.py", 6, "<module>", SCRIPT), ("train.py", 2, "forward", SCRIPT.split("\n\n")[0]))
    assert told(program_text.calls(own, "checkpoint")) == ["train.py:4 in forward"]
    assert told(program_text.assignments(own, "on")) == ["train.py:3 in forward", "train.py:6 in <module>"]
    assert program_text.functions(own) == {"forward"}


def test_of_another_file_it_is_the_functions_that_are_known():
    """Their lines are those of the file."""
    own = process(("net.py", 20, "forward", METHOD))
    (call,) = program_text.calls(own, "checkpoint")
    assert str(call.where) == "net.py:22 in forward"
    assert program_text.given(call.node, "use_reentrant") is None
    assert program_text.assignments(own, "on") == []


def test_what_a_call_is_given_under_a_name():
    """As it is written."""
    (call,) = program_text.calls(process(("train.py", 1, "<module>", SCRIPT)), "checkpoint")
    assert ast.unparse(program_text.given(call.node, "use_reentrant")) == "True"


def test_a_text_that_is_no_python_says_nothing():
    """A cell of a notebook, say."""
    assert program_text.calls(process(("cell", 1, "<module>", "%time f()\n")), "f") == []
