"""Why a step was not reduced, by the usage of the wrapper and the program's text."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import round_the_wrapper
from ddpcheck.checks.reducer_coverage.round_the_wrapper import IN_FORWARD, OF_THE_WRAPPER, found, why
from tests.judging.written import STEP, rank

CALLER, BARE, FORWARD = 200, 201, 30
MODEL = "class Net:\n    def loss_of(self, x):\n        return x\n"


def site(number, line, function, text, caller=0, body=""):
    fields = {"id": number, "file": "train.py", "line": line, "function": function, "text": text, "caller": caller}
    return ev.Site, {**fields, "first": 1, "body": body}


def because(*sites, backwards=1, inner=False, **usage):
    one = rank(0, list(sites))
    made = ev.Step(n=9, at=1.0, **{**STEP, "site": 9, "backwards": backwards})
    return why(one, made, ev.Usage(wrapper=0, backward_site=8, **usage), inner)


# --- the module inside


def of_text(text):
    return because(site(BARE, 54, "main", text), bare_site=BARE)


def test_a_method_of_the_module_inside_is_named():
    """What is to be changed is where it is called from."""
    told = of_text("loss = model.module.loss_of(x)")
    assert told.cause.startswith("loss_of() ran on `.module`")
    assert told.advice.startswith("Let the model's forward() call loss_of()")


@pytest.mark.parametrize(
    ("text", "advice"), [("y = model.module(x)", OF_THE_WRAPPER), ("net = model.module", IN_FORWARD)]
)
def test_without_a_method_none_is_named(text, advice):
    """Only who writes model.module(x) is told not to."""
    assert of_text(text).advice == advice
    assert "the loss came from `.module`" in of_text(text).cause


def asked(text):
    """What is said where __getattr__ gives out what was asked for in a line of this text."""
    return because(
        site(CALLER, 54, "main", text, body=MODEL),
        site(BARE, 33, "__getattr__", "return getattr(self.ddp.module, name)", CALLER),
        bare_site=BARE,
    )


def test_who_asks_a_proxy_is_the_line_to_change():
    """The proxy's own line is what shows it."""
    told = asked("loss = F.mse_loss(model.loss_of(x), y)")
    assert told.cause.startswith("loss_of() ran on the module inside of the wrapper, which __getattr__ at train.py:33")
    assert (told.where.line, [line.line for line in told.proof]) == (54, [33])


def test_what_the_program_does_not_define_is_no_method_of_its_model():
    """Nothing is named then."""
    told = asked("loss = model.anything(x)")
    assert told.cause.startswith("what is called here ran on the module inside")
    assert told.advice == IN_FORWARD


# --- the flag

SETS = "class Trainer:\n    def forward(self, x):\n        self.model.require_backward_grad_sync = not self.manual\n"
PREPARES = "        self.model.reducer.prepare_for_backward([])\n"
OTHER = "x = 1\n"


def flag(text, **more):
    return because(site(200, 1, "<module>", "", body=text), forwards=1, forward_site=FORWARD, last_armed=False, **more)


def test_a_flag_that_the_program_sets_is_told_with_its_line():
    """Nothing accumulates: no_sync() has no part in it."""
    told = flag(SETS)
    assert told.cause.endswith("was False there: the program sets it at train.py:3")
    assert told.where.line == 3
    assert "no_sync" not in told.advice


def test_one_that_it_does_not_set_is_told_of_at_the_forward():
    """Somebody else has, nobody knows where."""
    told = flag(OTHER)
    assert told.cause.endswith("was False there")
    assert told.where.line == FORWARD


def test_for_accumulated_gradients_there_is_no_sync():
    """Several backwards go into the step."""
    assert "no_sync" in flag(SETS, backwards=4).advice


def test_a_reduction_that_is_prepared_by_hand_is_told_with_its_line():
    """It has not come about, or the gradients would be the same."""
    assert "the reduction that it means to prepare by itself (train.py:4)" in flag(SETS + PREPARES).cause
    assert "by itself" not in flag(SETS).cause


# --- what was found


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ({}, "no forward went through the wrapper"),
        ({"forwards": 1}, "the forward through the wrapper ran with its reduction switched off"),
        ({"forwards": 3}, "each of 3 forwards through the wrapper ran with its reduction switched off"),
        ({"forwards": 3, "armed": 2}, "the last of 3 forwards through the wrapper ran with its"),
        ({"forwards": 1, "armed": 1, "sync_flag_site": 8}, "was switched off for the backward"),
    ],
)
def test_what_became_of_the_wrapper(usage, words):
    """In words, without counts that need a key."""
    assert words in found(rank(0, []), ev.Usage(wrapper=0, **usage), [3], [])


def test_the_steps_in_which_it_was_right_are_told_apart():
    """A reader sees the rule: every second one."""
    one = rank(0, [])
    told = found(one, ev.Usage(wrapper=0), [1, 3, 5], [0, 2, 4])
    assert told.startswith("before steps 1, 3 and 5 no forward")
    assert told.endswith("before steps 0, 2 and 4 one did")
    assert "one did" not in found(one, ev.Usage(wrapper=0), [1, 3, 5], [])


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([7], "step 7"), ([1, 2], "steps 1 and 2"), (range(12), "steps 0 to 11"),
     (range(0, 40, 2), "20 steps (the first are 0, 2, 4, 6)")],
)  # fmt: skip
def test_steps_in_words(numbers, words):
    """Few are named, and many counted."""
    assert round_the_wrapper._steps(list(numbers)) == words
