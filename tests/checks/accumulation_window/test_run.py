"""The judge of accumulation-window, without processes."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.accumulation_window import CHECK
from ddpcheck.checks.accumulation_window.run import STEPPED, judge
from ddpcheck.judging import declared_windows as declared
from tests.judging.sharded_models import optimizer
from tests.judging.written import Made, call, world

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


# --- lost, overwritten


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


def test_the_advisory_is_known_by_its_name():
    """It is no comparison that could make the check hold."""
    assert [rule.name for rule in CHECK.rules if rule.advisory] == [STEPPED]
