"""The judge of accumulation-window, without processes."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.accumulation_window import CHECK
from ddpcheck.checks.accumulation_window.run import STEPPED, judge
from ddpcheck.judging import declared_windows as declared
from tests.judging.sharded_models import optimizer
from tests.judging.written import Made, call, step, world

DIVIDED = "def main():\n    (loss(x) / ACCUMULATE).backward()\n"
PLAIN = "def main():\n    (loss(x) / count).backward()\n"
BACKWARD, CLIP, STEP = 120, 121, 9


def between(became: str, **more: Any) -> ev.Between:
    return ev.Between(became=became, after=BACKWARD, before=BACKWARD, **more)  # type: ignore[arg-type]


def window(number: int, *its: ev.Between, **more: Any) -> Made:
    """The window before a step at line 9."""
    given = {"backwards": len(its) + 1, "forwards": len(its) + 1, "divisor": None, **more}
    return ev.Window, {
        "optimizer": 0, "number": number, "site": STEP, "backward_site": BACKWARD, "between": list(its), **given,
    }  # fmt: skip


def of(*windows: Made, body: str = PLAIN) -> Any:
    """Two ranks with these windows; the text is that of the function that calls backward()."""
    line = {"file": "train.py", "function": "main", "caller": 0, "through": (), "first": 1}
    sites: list[Made] = [
        (ev.Site, {"id": BACKWARD, "line": 2, "text": "backward()", "body": body, **line}),
        (ev.Site, {"id": CLIP, "line": 3, "text": "clip()", "body": "", **line}),
    ]
    return world(*([*sites, optimizer(3, {"weight": None, "bias": None}), *windows] for _ in range(2)))


def found(*windows: Made, body: str = PLAIN) -> list[tuple[str, str]]:
    """Severity and cause."""
    return [(one.severity, one.cause) for one in judge(of(*windows, body=body)).findings]


def test_added_to_is_held():
    """Micro-batches whose gradients are as they were left."""
    judged = judge(of(*(window(n, between("kept"), between("kept")) for n in range(4))))
    assert judged.findings == ()
    assert judged.checked == 4


@pytest.mark.parametrize(("as_left", "compared"), [(True, 3), (False, 0)])
def test_what_stays_beside_another_optimizers_steps_is_compared_where_the_step_is_made_on_it(as_left, compared):
    """An outer optimizer is given its gradients once a round, and no backward() adds to them."""
    inner = step(9, optimizer=1)
    rounds = [one for n in range(3) for one in (inner, window(n, between("kept"), between("kept"), as_left=as_left))]
    assert judge(of(*rounds)).checked == compared


@pytest.mark.parametrize("its", [
    window(0, between("kept"), between("zeroed")),
    window(0, between("kept"), between("rescaled", factor=0.5)),
    window(0, between("other")),
    window(0, between("kept"), leftover=True),
    window(0, between("kept"), unreduced=True),
])  # fmt: skip
def test_what_is_not_seen_to_stay_is_not_held(its):
    judged = judge(of(its))
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because


def test_what_one_rank_adds_up_and_another_does_not():
    records, kept, zeroed = [optimizer(3, {"weight": None})], window(0, between("kept")), window(0, between("zeroed"))
    assert judge(world([*records, kept], [*records, kept])).checked == 1
    assert judge(world([*records, kept], [*records, zeroed])).checked == 0


def test_single_batches_are_not_checked():
    """A step for each backward(), and no word of a window."""
    judged = judge(of(*(window(n, divisor=4.0) for n in range(4))))
    assert judged.checked == 0
    assert judged.skipped_because


# --- a step for each


def test_a_step_for_each_micro_batch():
    """The loss is divided by a number that is called so, and each backward() is stepped on."""
    (finding,) = judge(of(*(window(n, divisor=4.0) for n in range(4)), body=DIVIDED)).findings
    assert (finding.severity, finding.ranks, finding.where.line, finding.step) == ("error", (0, 1), STEP, 1)
    assert "one step for 4 backward() calls" in finding.expected
    (within,) = judge(of(*(window(n, divisor=4.0, within=True) for n in range(4)), body=DIVIDED)).findings
    assert "within backward()" in within.cause


@pytest.mark.parametrize(
    "more",
    [
        {"divisor": 1.0},
        {"divisor": 2.5},
        {"divisor": None},
        {"divisor": 4.0, "backwards": 4},
        {"divisor": 4.0, "forwards": 4},
    ],
)
def test_no_step_for_each(more):
    """A window of one, another factor, a whole window; and a sum of several losses in one backward()."""
    assert found(*(window(n, **more) for n in range(4)), body=DIVIDED) == []


def test_a_short_last_window():
    """What is left over at the end of an epoch is stepped on, too."""
    windows = [window(n, *[between("kept")] * 3, divisor=4.0) for n in range(3)]
    assert found(*windows, window(3, divisor=4.0), body=DIVIDED) == []


@pytest.mark.parametrize(
    ("text", "says_so"),
    [
        ("def main():\n    loss = loss / args.gradient_accumulation_steps\n    loss.backward()\n", True),
        ("def main():\n    loss /= self.num_microbatches\n    loss.backward()\n", True),
        ("def main():\n    whole = short if n else ACCUMULATE\n    (loss / whole).backward()\n", True),
        ("def main():\n    (loss / len(micro_batches)).backward()\n", True),
        ("def main():\n    (loss.sum() / micro_batch_size).backward()\n", False),
        ("def main():\n    (loss.sum() / len(micro_batch)).backward()\n", False),
        ("def main():\n    (loss.sum() / accumulated_tokens).backward()\n", False),
        ("def main():\n    (loss / world_size).backward()\n    if n % accumulate:\n        step()\n", False),
        ("def main(:\n", False),
        ("", False),
    ],
)
def test_what_a_program_says(text, says_so):
    """By the name of what it divides by."""
    (rank, _) = of(window(0, divisor=4.0), body=text)
    assert declared.micro_batches(rank, rank.of(ev.Window)[0]) == (4 if says_so else 0)


@pytest.mark.parametrize("divisor", [float("inf"), float("nan"), -float("inf"), 1.0, 2.5, None])
def test_what_is_no_number_of_micro_batches(divisor):
    """A loss may be divided by anything."""
    assert declared.divided_by(ev.Window(**{"n": 0, "at": 0.0, **window(0, divisor=divisor)[1]})) == 0


# --- rescaled


def test_clipped_in_every_micro_batch():
    """The line of the clip."""
    windows = [window(n, between("rescaled", factor=0.3, clip=CLIP), between("rescaled", factor=0.2, clip=CLIP))
               for n in range(3)]  # fmt: skip
    (finding,) = judge(of(*windows)).findings
    assert (finding.severity, finding.subject, finding.where.line) == ("error", "weight", 3)
    assert "clipped after every micro-batch" in finding.cause


@pytest.mark.parametrize("body", [DIVIDED, PLAIN])
def test_scaled_by_hand(body):
    """A warning, whatever the loss is divided by is called."""
    windows = [window(n, *[between("rescaled", factor=0.5, place=1)] * 2, divisor=3.0) for n in range(3)]
    ((severity, _),) = found(*windows, body=body)
    assert severity == "warning"


def test_the_mean_so_far():
    """Gradients that are kept as the mean of what there was."""
    means = [between("rescaled", factor=n / (n + 1)) for n in (1, 2, 3)]
    assert found(*(window(n, *means) for n in range(3)), body=DIVIDED) == []


def test_between_different_lines():
    """The gradients of one loss may be clipped before those of another one are added."""
    one = ev.Between(became="rescaled", after=BACKWARD, before=5, factor=0.3, clip=CLIP)
    assert found(*(window(n, one) for n in range(3))) == []


# --- lost, overwritten


@pytest.mark.parametrize(
    ("body", "more", "severity"),
    [(DIVIDED, {}, "warning"), (PLAIN, {}, "warning"), (PLAIN, {"prepared": True}, "error")],
)
def test_gone_in_the_middle_of_a_window(body, more, severity):
    """What a line has left is there at one boundary, and gone at the next."""
    windows = [window(n, between("kept"), between("lost", **more), as_left=True, divisor=3.0) for n in range(3)]
    ((found_severity, _),) = found(*windows, body=body)
    assert found_severity == severity


def test_zeroed_on_purpose():
    """A batch that is left out; and gradients that are collected elsewhere, which are others at the step."""
    assert found(window(0, between("kept"), between("zeroed"), as_left=True), window(1, between("kept"))) == []
    collected = [window(n, between("kept"), between("lost"), as_left=False) for n in range(3)]
    assert found(*collected, body=DIVIDED) == []


def test_two_models_take_turns():
    """The gradients that one model's loss leaves in the other one are dropped, always."""
    other = ev.Between(became="lost", after=5, before=BACKWARD)
    assert found(*(window(n, other, between("kept"), as_left=True) for n in range(3)), body=DIVIDED) == []


@pytest.mark.parametrize(("divisor", "times"), [(4.0, 1), (5.0, 0), (4.2, 0), (None, 0)])
def test_zeroed_in_every_micro_step(divisor, times):
    """A loss is divided by as many as there are backward() calls, under a name that says nothing."""
    windows = [window(n, *[between("zeroed")] * 3, alone=True, backwards=4, divisor=divisor) for n in range(3)]
    assert [severity for severity, _ in found(*windows, body=PLAIN)] == ["warning"] * times


@pytest.mark.parametrize(("alone", "times"), [(True, 1), (False, 0)])
def test_overwritten(alone, times):
    """By the last reduction; unless the step is made on something else in the end."""
    windows = [window(n, between("overwritten"), alone=alone) for n in range(3)]
    assert len(found(*windows)) == times


def test_a_step_before_the_reduction():
    """FSDP was told not to reduce in any backward() of the window."""
    assert len(found(*(window(n, unreduced=True) for n in range(3)))) == 1
    assert found(window(0, unreduced=True), window(1), window(2)) == []


# --- gradients that nobody zeroes


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([{"leftover": n > 0, "as_left": True} for n in range(4)], 1),
        ([{"leftover": n > 0, "as_left": True} for n in range(3)], 0),  # too early to say
        ([{"leftover": n > 0, "as_left": n != 2} for n in range(4)], 0),  # something is done to them
        ([{"leftover": n > 1, "as_left": True} for n in range(4)], 0),
    ],
)
def test_gradients_of_all_windows_before(windows, expected):
    """A sum without end, and a warning."""
    findings = judge(of(*(window(n, **more) for n, more in enumerate(windows)))).findings
    assert [one.severity for one in findings] == ["warning"] * expected


# --- stages of a pipeline


def of_stages(zeroed: list[ev.Between], kept: list[ev.Between], sends: int = 1, divisor: float | None = 3.0) -> Any:
    """Rank 0 has a stage before that of rank 1, which has the loss."""
    line = {"file": "train.py", "function": "main", "caller": 0, "through": (), "first": 1}
    site = (ev.Site, {"id": BACKWARD, "line": 2, "text": "backward()", "body": DIVIDED, **line})
    ranks = []
    for rank, (its, more) in enumerate(((zeroed, {"alone": True}), (kept, {"divisor": divisor}))):
        sent = [call(number, 5, op="send", peer=1 - rank) for number in range(sends)]
        windows = [window(number, *its, **more) for number in range(4)]
        ranks.append([site, optimizer(3, {"weight": None}), *sent, *windows])
    return world(*ranks)


def test_a_stage_that_zeroes_its_gradients_in_each_micro_batch():
    """The other one says how many there are, and keeps them."""
    judged = judge(of_stages([between("zeroed")] * 2, [between("kept")] * 2))
    (found,) = judged.findings
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0,), STEP)
    assert "gradients of 3 micro-batches" in found.expected


@pytest.mark.parametrize("given", [
    {"kept": [between("zeroed")] * 2},  # none adds them up: each micro-batch is a trial
    {"kept": [between("kept")]},  # the other one has fewer
    {"divisor": None},  # nobody says that a step takes several
    {"sends": 0},  # no stages of one pipeline
    {"zeroed": [between("zeroed"), between("kept")]},
])  # fmt: skip
def test_stages_that_may_zero_theirs(given):
    given = {"zeroed": [between("zeroed")] * 2, "kept": [between("kept")] * 2, **given}
    assert [one for one in judge(of_stages(**given)).findings if one.severity == "warning"] == []


def test_the_advisory_is_known_by_its_name():
    """It is no comparison that could make the check hold."""
    assert [rule.name for rule in CHECK.rules if rule.advisory] == [STEPPED]
