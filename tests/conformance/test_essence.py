"""The traceback of a failed trainer: a short one as it is, of a long one what was called, where, and the error."""

from __future__ import annotations

from ddpcheck.conformance.situation_runner import LONGEST, essence

SHORT = """\
    def fit(job):
>       train(job)

trainer.py:3: in fit
E       ValueError: no"""


def test_a_short_one_is_shown_as_it_is() -> None:
    assert essence(SHORT) == SHORT


def test_of_a_long_one_the_source_of_libraries_is_left_out() -> None:
    documented = "\n".join(f"        line {number} of a docstring" for number in range(LONGEST))
    text = SHORT.replace(">       train", f"{documented}\n>       train")
    assert essence(text) == ">       train(job)\ntrainer.py:3: in fit\nE       ValueError: no"


def test_stacks_of_a_hang_are_shown_whole() -> None:
    text = "\n".join(f'  File "trainer.py", line {number} in fit' for number in range(2 * LONGEST))
    assert essence(text) == text
