"""A call chain in one line: shown where it says more than the line itself."""

from __future__ import annotations

from ddpcheck.report.call_chain import told
from ddpcheck.vocabulary.model import CallSite


def chain(*places):
    """The last of lines that call each other: file, line, function, and the libraries in between."""
    found = None
    for file, line, function, *through in places:
        found = CallSite(file=file, line=line, function=function, caller=found, through=tuple(through))
    return found


MODULE, MAIN = ("train.py", 90, "<module>"), ("train.py", 80, "main")


def test_what_says_no_more_than_the_line():
    assert told(None) == ""
    assert told(chain(MODULE)) == ""
    assert told(chain(MODULE, MAIN)) == ""


def test_a_function_that_another_calls():
    """Which of its calls it was is not to be seen from its own line."""
    assert told(chain(MODULE, MAIN, ("train.py", 41, "train"))) == "main (train.py:80) → train (train.py:41)"
    place = chain(MODULE, MAIN, ("train.py", 41, "train"), ("train.py", 5, "reduce_mean"))
    assert told(place) == "main (train.py:80) → train (train.py:41) → reduce_mean (train.py:5)"


def test_another_file():
    place = chain(MODULE, MAIN, ("util.py", 5, "reduce_mean"))
    assert told(place) == "main (train.py:80) → reduce_mean (util.py:5)"


def test_a_library_is_folded():
    """It is named by the function that was called; what it uses itself is its own affair."""
    into = ("lightning: Trainer.fit", "torchmetrics: Metric.update")
    place = chain(MODULE, (*MAIN, *into), ("model.py", 30, "training_step"))
    assert told(place) == "main (train.py:80) → in lightning: Trainer.fit → training_step (model.py:30)"
    assert told(chain((*MODULE, "accelerate: prepare"))) == "train.py:90 → in accelerate: prepare"


def test_a_long_one():
    """The outermost and the innermost lines are shown."""
    place = chain(MODULE, *(("deep.py", line, f"f{line}") for line in range(1, 10)))
    assert told(place) == "f1 (deep.py:1) → … → f7 (deep.py:7) → f8 (deep.py:8) → f9 (deep.py:9)"
