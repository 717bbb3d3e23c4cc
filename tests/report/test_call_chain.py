"""A line with the way to it: callers are shown where they say more than the line itself."""

from __future__ import annotations

import pytest

from ddpcheck.report.call_chain import way
from ddpcheck.vocabulary.model import CallSite


def chain(*places):
    """The last of lines that call each other: file, line, function, and the libraries in between."""
    found = None
    for file, line, function, *through in places:
        found = CallSite(file=file, line=line, function=function, caller=found, through=tuple(through))
    return found


MODULE, MAIN = ("train.py", 90, "<module>"), ("train.py", 80, "main")


def of(where, **texts):
    """The line, where those of functions have these texts."""
    return way(where, lambda one: texts.get(one.function, ""))


def test_what_says_no_more_than_the_line():
    assert of(chain(MODULE)) == "train.py:90 in <module>"
    assert of(chain(MODULE, MAIN)) == "train.py:80 in main"


def test_a_function_that_another_calls():
    """Which of its calls it was is not to be seen from its own line."""
    assert of(chain(MODULE, MAIN, ("train.py", 41, "train"))) == "train.py:41 in main:80 → train"
    place = chain(MODULE, MAIN, ("train.py", 41, "train"), ("train.py", 5, "reduce_mean"))
    assert of(place) == "train.py:5 in main:80 → train:41 → reduce_mean"


def test_another_file():
    place = chain(MODULE, MAIN, ("util.py", 5, "reduce_mean"))
    assert of(place) == "util.py:5 in train.py:90 → main (train.py:80) → reduce_mean"


def test_a_library_is_folded():
    """It is named by the function that was called; what it uses itself is its own affair."""
    into = ("lightning: Trainer.fit", "torchmetrics: Metric.update")
    place = chain((*MAIN, *into), ("model.py", 30, "training_step"))
    assert of(place) == "model.py:30 in main (train.py:80) → in lightning: Trainer.fit → training_step"
    assert of(chain((*MODULE, "accelerate: prepare"))) == "train.py:90 in <module> → in accelerate: prepare"


def test_a_long_one():
    """The outermost and the innermost lines are shown."""
    place = chain(MODULE, *(("deep.py", line, f"f{line}") for line in range(1, 10)))
    assert of(place) == "deep.py:9 in train.py:90 → … → f6:6 → f7:7 → f8:8 → f9"


@pytest.mark.parametrize(
    "text", ["function(*args, **kwargs)", "return self.fn(self, *args,  **options)", "result = f(*a, **k)"]
)
def test_a_wrapper_is_left_out(text):
    """A decorator's function hands all its arguments on: it says nothing of the way."""
    place = chain(MODULE, MAIN, ("tools.py", 7, "call"), ("train.py", 41, "train"))
    assert of(place, call=text) == "train.py:41 in main:80 → train"


@pytest.mark.parametrize("text", ["function(*args)", "run(step, **kwargs)", "loop(3, *args, **kwargs)", "step()", ""])
def test_other_functions_are_not(text):
    place = chain(MODULE, MAIN, ("tools.py", 7, "call"), ("train.py", 41, "train"))
    assert of(place, call=text) == "train.py:41 in main:80 → call (tools.py:7) → train"


def test_a_wrapper_that_the_finding_is_about_is_told():
    place = chain(MODULE, MAIN, ("tools.py", 7, "call"))
    assert of(place, call="function(*args, **kwargs)").endswith("→ call")
