"""What was given to a save, and what it held when it was written."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_snapshot.run import judge
from tests.judging.written import loaded, step, world
from tests.judging.written_state import Forms, plain, weight


def of(*records):
    return judge(world(list(records), world_size=1))


def optimizer(*names):
    parameters = [ev.Parameter(name=name, kind="float32[2]", wrapper=None, reduced=False) for name in names]
    return ev.Optimizer, {
        "optimizer": 0,
        "kind": "SGD",
        "site": 5,
        "parameters": parameters,
        "sharded": False,
        "values": b"",
    }


def written(*changed, **more):
    return ev.StateWritten, {"save": 0, "changed": list(changed), **more}


def saved(*values, **more):
    return Forms().saved(10, "/job/x.pt", *values, **more)


STATE = [weight("model.a", 1, 2), plain("model.b", 3, 4)]


def test_nothing_has_changed():
    judged = of(*saved(*STATE), step(20), written())
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize("more", [{}, {"staged": True}])
def test_a_step_while_it_is_written(more):
    """In the background, or while it is copied."""
    (found,) = of(*saved(*STATE), step(20, number=4), written(0, **more)).findings
    assert (found.severity, found.step, found.subject, found.where.line) == ("error", 4, "model.a", 10)
    assert found.proof[0][1].line == 20


def test_a_change_without_a_step():
    """Something of the program's own."""
    (found,) = of(*saved(*STATE), written(1)).findings
    assert found.severity == "warning"


BEFORE = (step(19),)


def in_thread(*between, name="Thread-1 (write)", state=STATE, trained="a", before=BEFORE):
    started = ev.Started, {"kind": "thread", "name": name, "pid": None, "site": 8}
    return of(optimizer(trained), *before, started, *between, *saved(*state, thread=name), written())


def test_a_step_before_the_thread_begins_to_write():
    (found,) = in_thread(step(20, number=4)).findings
    assert (found.severity, found.subject) == ("error", "model.a")


@pytest.mark.parametrize(
    "more",
    [
        {"name": "ThreadPoolExecutor-0_0"},
        {"state": [plain("model.a", 1, 2, role="parameter", of="a")]},  # a copy
        {"trained": "c"},
        {"before": ()},  # it is there from the beginning, and waits for what it will be given
    ],
)
def test_threads_that_may_be_right(more):
    assert in_thread(step(20), **more).findings == ()


def test_a_thread_that_is_waited_for():
    assert in_thread().findings == ()


def test_a_thread_that_saves_again_and_again():
    """When it was started says nothing of what it was given."""
    earlier = Forms().saved(10, "/job/0.pt", *STATE, thread="Thread-1 (write)", save=7)
    assert in_thread(*earlier, step(20)).findings == ()


# --- faked steps


def asked(*between, changed=("exp_avg", "step")):
    record = {"how": "get_state_dict", "optimizer": 0, "kind": "Adam", "site": 10, "changed": list(changed)}
    return of((ev.StateAsked, record), *between)


def test_a_step_that_is_faked_and_stays():
    (found,) = asked(step(20, number=1)).findings
    assert (found.severity, found.where.line) == ("warning", 10)


@pytest.mark.parametrize(
    ("between", "changed"),
    [
        ([], ("exp_avg", "step")),
        ([loaded("optimizer", 11, kind="Adam"), step(20)], ("exp_avg", "step")),
        ([step(20, optimizer=1)], ("exp_avg", "step")),
        ([step(20)], ("momentum_buffer",)),
    ],
)
def test_steps_that_change_nothing(between, changed):
    """Loaded over, never trained with, or of an optimizer that counts no steps."""
    assert asked(*between, changed=changed).findings == ()


# --- names


def test_a_buffer_under_anothers_name():
    buffers = [plain(name, 1, 2, role="buffer", of=name) for name in ("mean", "spread")]
    (found,) = of(*saved(*buffers, mistaken=[(0, 1)]), written()).findings
    assert (found.severity, found.subject) == ("error", "mean")
    assert "spread" in found.found


def test_nothing_is_saved():
    assert of(step(20)).checked == 0


def test_what_was_seen_in_part_is_not_checked():
    """What has changed of it is a finding all the same."""
    judged = of(*saved(*STATE, left_out=1), step(20), written())
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == "a state dict with more than 2 entries was looked at in part"
    assert of(*saved(*STATE, left_out=1), step(20, number=4), written(0)).findings
