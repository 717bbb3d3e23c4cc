"""Models that follow a trained one, from evidence that is written by hand, and what weight-sync says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from ddpcheck import evidence as ev
from ddpcheck.checks.weight_sync.run import judge
from ddpcheck.facts import followers, sketches
from tests.judging.written import Made, loaded, world

Tensors = dict[str, NDArray[np.float64]]
NAMES = ("a", "b", "c", "d")
USED, MADE = 6, 9


def drawn(number: int, names: Sequence[str] = NAMES) -> Tensors:
    draw = np.random.default_rng(number)
    return {name: draw.normal(size=(5, 4)) for name in names}


def stepped(model: Tensors, number: int) -> Tensors:
    return {name: one + 0.1 * drawn(100 + number)[name] for name, one in model.items()}


def used(look: int, model: int, tensors: Tensors, trained: bool, called: str = "", **more: Any) -> Made:
    """What one model holds at a look; ``called`` names the tensors whose modules are called."""
    fields = {
        "look": look, "model": model, "kind": "Net", "trained": trained, "steps": look, "uses": look, "site": USED,
        "digests": b"".join(xxhash.xxh3_64_digest(one.astype("<f4").tobytes()) for one in tensors.values()),
        "sketches": b"".join(sketches.of(one).tobytes() for one in tensors.values()),
        "used": b"" if trained else bytes(name in (called or NAMES) for name in tensors),
        "names": list(tensors), "dtypes": ["float32"] * len(tensors), "shapes": [one.shape for one in tensors.values()],
    }  # fmt: skip
    return ev.ModelUsed, {**fields, **more}


Update = Callable[[str, Tensors, Tensors, Tensors], NDArray[np.float64]]
"""By name, what a follower had, what the model is now and what it was: what the follower has then."""


def kept(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    return own[name]


def copied(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    return now[name]


def earlier(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    return before[name]


def averaged(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    return 0.9 * own[name] + 0.1 * now[name]


def exchanged(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    return now["a" if name == "b" else "b"]


def drifting(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
    between = before[name] + 0.7 * (now[name] - before[name]) + 0.002 * drawn(7)[name]
    return 0.9 * (0.9 * own[name] + 0.1 * between) + 0.1 * now[name]


def rank(by_name: Mapping[str, Update], number: int = 6, start: int = 50, **more: Any) -> list[Made]:
    """A model that is trained, and a second one that is used after each step."""
    model, own, found = drawn(1), drawn(start), []
    for look in range(1, number + 1):
        before, model = model, stepped(model, look)
        own = {name: by_name.get(name, copied)(name, own, model, before) for name in NAMES}
        found += [used(look, 1, own, trained=False, **more), used(look, 0, model, trained=True)]
    return found


def judged(*ranks: list[Made]) -> Any:
    result = judge(world(*ranks))
    return result, [(one.rule, one.subject, one.count, one.ranks) for one in result.findings]


@pytest.mark.parametrize("update", [copied, averaged])
def test_all_take_over_the_same(update: Update) -> None:
    ours = rank(dict.fromkeys(NAMES, update))
    result, found = judged(ours, ours)
    assert (found, result.checked, result.of) == ([], 5, 6)


@pytest.mark.parametrize(("update", "how"), [(copied, "all of it"), (averaged, "a share of 0.1")])
def test_a_tensor_that_is_left_out(update: Update, how: str) -> None:
    ours = rank({**dict.fromkeys(NAMES, update), "c": kept})
    result, found = judged(ours, ours)
    assert found == [("tensors-left-out", "Net.c", 5, (0, 1))]
    assert result.findings[0].found.endswith(f"at 5 uses at which others take over {how}")
    assert result.findings[0].severity == "warning"


def test_most_are_left_out() -> None:
    """Two are enough to say that it follows."""
    assert judged(rank({"c": kept, "d": kept}))[1] == [("tensors-left-out", "Net.c", 5, (0,))]
    result, found = judged(rank({"b": kept, "c": kept, "d": kept}))
    assert (found, result.checked) == ([], 0)


def test_what_is_not_used_may_be_anything() -> None:
    assert judged(rank({"c": kept}, called="abd"))[1] == []


def test_a_model_that_follows_none() -> None:
    result, found = judged(rank(dict.fromkeys(NAMES, kept)))
    assert (result.checked, found) == (0, [])
    assert result.skipped_because.startswith("ddpcheck saw no model that takes over")
    assert judged([])[0].skipped_because.startswith("ddpcheck saw no model that no optimizer steps")


def test_once_may_be_meant() -> None:
    assert judged(rank({"c": kept}, number=2))[1] == []


def test_tensors_that_are_exchanged() -> None:
    result, found = judged(rank({"a": exchanged, "b": exchanged}))
    assert found == [("tensor-of-another-name", "Net.a", 5, (0,))]
    assert "a has that of b" in result.findings[0].found


def test_tensors_of_another_moment() -> None:
    assert judged(rank({"d": earlier}))[1] == [("tensors-of-another-moment", "Net.d", 5, (0,))]
    assert judged(rank(dict.fromkeys(NAMES, earlier)))[1] == []  # all of them: it follows a step behind


def test_of_several_steps_it_is_known_who_moves() -> None:
    """An average that is used now and then: by what numbers it comes nearer is not known."""
    ours = dict.fromkeys(NAMES, drifting)
    result, found = judged(rank(ours))
    assert (result.checked, found) == (0, [])
    assert judged(rank({**ours, "b": kept}))[1] == [("tensors-left-out", "Net.b", 5, (0,))]


def test_something_else_is_written() -> None:
    """What is not explained is no share of anything, and the use is not compared."""

    def noise(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
        return own[name] + drawn(int(abs(own[name][0, 0]) * 1e6))[name]

    result, found = judged(rank({"c": noise}))
    assert (result.checked, found) == (0, [])


def test_buffers_may_change_by_themselves() -> None:
    def counted(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
        return own[name] + 1

    ours = rank({"d": counted})
    of_buffers = [(kind, {**fields, "buffers": 1}) for kind, fields in ours]
    result, found = judged(of_buffers)
    assert (result.checked, found) == (5, [])


def test_a_buffer_that_is_left_out() -> None:
    ours = [(kind, {**fields, "buffers": 1}) for kind, fields in rank({**dict.fromkeys(NAMES, averaged), "d": kept})]
    assert judged(ours)[1] == [("tensors-left-out", "Net.d", 5, (0,))]


def test_ranks_on_which_it_follows_nothing() -> None:
    """Such ranks may have another part; what all of them hold in evaluations, parameter-sync compares."""
    result, found = judged(rank({}), rank(dict.fromkeys(NAMES, kept)))
    assert (result.checked, found) == (0, [])


@pytest.mark.parametrize("uses", [{2, 4}, {3}], ids=["every second", "once"])
def test_a_tensor_that_is_left_out_now_and_then(uses: set[int]) -> None:
    """It may be meant to, and such a use is none of which all is well."""
    times = iter(range(1, 100))

    def some(name: str, own: Tensors, now: Tensors, before: Tensors) -> NDArray[np.float64]:
        return own[name] if next(times) in uses else now[name]

    result, found = judged(rank({"c": some}))
    assert (found, result.checked, result.of) == ([], 5 - len(uses), 6)


def test_tensors_of_other_names_are_not_compared() -> None:
    """Nor is a use of them."""
    ours = [
        (kind, {**fields, "names": ["x" if one == "c" and not fields["trained"] else one for one in fields["names"]]})
        for kind, fields in rank({})
    ]
    result, found = judged(ours)
    assert (found, result.checked, result.of) == ([], 0, 6)


@pytest.mark.parametrize(("lines", "line"), [([], USED), ([0], USED), ([10, 20], MADE)], ids=["none", "first", "each"])
def test_the_line_that_writes_to_it(lines: list[int], line: int) -> None:
    """A load before its first use says nothing of what comes after."""
    ours = rank({"c": kept})
    for place in lines:
        ours.insert(place and place // 4, loaded("module", MADE, model=1))
    (found,) = judge(world(ours)).findings
    assert found.where is not None
    assert found.where.line == line


# --- several trained models


def two(first: Mapping[str, int], starts: tuple[int, int] = (1, 2), known: bool = True) -> list[Made]:
    """Two models that are trained, and a copy, at first of the second one, that takes each tensor from one."""
    models, found = [drawn(start) for start in starts], []
    own = dict(models[1])
    held = [
        ev.Held(name=name, kind="float32[5, 4]", digest=xxhash.xxh3_64_digest(one.astype("<f4").tobytes()))
        for name, one in models[1].items()
    ]
    found.append(used(0, 2, own, trained=False))
    if known:
        found.append((ev.Model, {"model": 1, "kind": "Net", "site": MADE, "held": held}))
    for look in range(1, 7):
        models = [stepped(one, 10 * look + number) for number, one in enumerate(models)]
        own = {name: models[first[name]][name] for name in NAMES}
        found += [
            used(look, 2, own, trained=False),
            *(used(look, n, one, trained=True) for n, one in enumerate(models)),
        ]
    return found


def test_one_tensor_of_another_model() -> None:
    """What it is to follow, nobody says: such a use is not compared."""
    result, found = judged(two({"a": 1, "b": 1, "c": 0, "d": 1}))
    assert (result.checked, found) == (0, [])


def test_a_copy_of_one_that_follows_another() -> None:
    result, found = judged(two(dict.fromkeys(NAMES, 0)))
    assert found == [("follower-of-another-model", "Net.a", 6, (0,))]
    assert result.checked == 0
    assert "all 4 tensors following a Net that it did not begin as a copy of" in result.findings[0].found
    assert judged(two(dict.fromkeys(NAMES, 1)))[1] == []


# --- parts


def cut(made: Made, rows: slice) -> Made:
    """What a rank records of its rows."""
    kind, fields = made
    layout = {
        place: ev.Layout(
            ground="DTensor", shape=(5, 4), placements=("S0",), local=(rows.stop - rows.start, 4),
            offset=(rows.start, 0),
        )
        for place in range(len(NAMES))
    }  # fmt: skip
    return kind, {**fields, "layouts": layout}


def sharded(by_name: Mapping[str, Update]) -> list[list[Made]]:
    """The trained model in two parts; the copy is whole on both ranks."""
    model, own = drawn(1), drawn(50)
    ranks: list[list[Made]] = [[], []]
    for look in range(1, 7):
        before, model = model, stepped(model, look)
        own = {name: by_name.get(name, copied)(name, own, model, before) for name in NAMES}
        for number, rows in enumerate((slice(0, 3), slice(3, 5))):
            mine = {
                name: np.where(np.isin(np.arange(5), range(5)[rows])[:, None], one, 0) for name, one in model.items()
            }
            ranks[number] += [used(look, 1, own, trained=False), cut(used(look, 0, mine, trained=True), rows)]
    return ranks


def test_parts_add_up() -> None:
    result, found = judged(*sharded({}))
    assert (found, result.checked) == ([], 5)
    assert judged(*sharded({"b": kept}))[1] == [("tensors-left-out", "Net.b", 5, (0, 1))]
    assert judged(sharded({"b": kept})[0])[0].checked == 0  # of one part nothing follows


def test_copies_of_what_differs_differ() -> None:
    """Such as those of shards that each rank has cut for itself."""
    alike = rank({})
    assert not followers.differ_as_trained(world(alike, alike), {0: 1, 1: 1})
    other = [(kind, {**fields, "digests": bytes(255 - one for one in fields["digests"])}) for kind, fields in alike]
    assert followers.differ_as_trained(world(alike, other), {0: 1, 1: 1})
    assert not followers.differ_as_trained(world(alike, other), {0: 3, 1: 3})
