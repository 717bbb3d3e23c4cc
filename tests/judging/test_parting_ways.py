"""Where two ranks' ways part: one place is named where there is one, and none where several are as likely."""

from __future__ import annotations

import ast
import math
import textwrap

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.parting_ways import gone_on, is_for_some_ranks, past, turn
from ddpcheck.judging.world import Process, Rank, Stretch

JOINED = ev.Joined(n=1, at=0.1, rank=0, world_size=2, token="t", backend="gloo", local_rank=0, site=0)


def rank_at(source, chain):
    """A rank whose call has come by these lines of a file: the words that stand in them as comments."""
    source = textwrap.dedent(source).lstrip("\n")
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    process = Process()
    sites = []
    for word in chain:
        line = next(n for n, text in enumerate(lines, 1) if text.endswith(f"# {word}"))
        around = [f for f in functions if f.lineno <= line <= f.end_lineno]
        inner = max(around, key=lambda f: f.lineno, default=None)
        body = "\n".join(lines[inner.lineno - 1 : inner.end_lineno]) + "\n" if inner else source
        sites.append(
            ev.Site(
                n=0, at=0.0, id=len(sites) + 1, file="train.py", line=line, caller=len(sites),
                function=inner.name if inner else "<module>", text=lines[line - 1],
                first=inner.lineno if inner else 1, body=body,
            )
        )  # fmt: skip
    process.add([*sites, JOINED])
    return Rank(Stretch(process, JOINED, 0, math.inf)), len(sites)


def ways(source, one, other):
    found = turn(rank_at(source, one.split()), rank_at(source, other.split()))
    return found and (str(found), found.inside)


CONDITION = """
    def train():
        for batch in range(EPOCHS):
            step()  # step
            if rank == 0:
                all_reduce()  # alone
        barrier()  # end
"""


def test_a_call_under_a_condition():
    assert ways(CONDITION, "alone", "step") == ("`if rank == 0:` (train.py:4)", True)
    assert ways(CONDITION, "step", "alone") == ("`if rank == 0:` (train.py:4)", False)


@pytest.mark.parametrize("test", ["trainer.is_world_process_zero()", "self.state.is_local_process_zero"])
def test_a_trainer_s_word_for_rank_0(test):
    assert ways(CONDITION.replace("rank == 0", test), "alone", "step") == (f"`if {test}:` (train.py:4)", True)


def test_a_condition_of_the_caller():
    """The call stands in a function that both ranks might have come to."""
    source = """
    def main():
        for epoch in range(3):
            train()  # train
            if accelerator.is_main_process:
                validate()  # validate

    def train():
        for batch in batches:
            step()  # step

    def validate():
        for batch in batches:
            reduce_mean()  # reduce
    """
    expected = ("`if accelerator.is_main_process:` (train.py:4)", True)
    assert ways(source, "validate reduce", "train step") == expected


def test_two_arms_of_one_condition():
    source = """
    if not dist.get_rank():
        barrier()  # one
    else:
        all_reduce()  # other
    """
    assert ways(source, "one", "other") == ("`if not dist.get_rank():` (train.py:1)", True)
    assert ways(source, "other", "one") == ("`if not dist.get_rank():` (train.py:1)", False)


LOOP = """
    def main():
        for epoch in range(EPOCHS):
            train()  # train
            value = validate()
            if value > best:
                best = value
            elif epoch - last > 3:
                break
        barrier()  # end

    def train():
        for x in loader:
            step()  # step
"""


def test_a_loop_that_was_left():
    """By its only `break`; the loops inside end on their own."""
    found = turn(rank_at(LOOP, ["end"]), rank_at(LOOP.replace("in loader", "in range(STEPS)"), ["train", "step"]))
    assert [str(branch) for branch in found.branches] == ["the `break` under `elif epoch - last > 3:`"]
    assert (found.branches[0].line, found.branches[0].of, found.inside) == (7, 2, False)


def test_a_function_that_was_left():
    source = """
    def main():
        fit()  # fit
        barrier()  # end

    def fit():
        for x in range(STEPS):
            loss = step()  # step
            if loss < target:
                return loss
        return None
    """
    assert ways(source, "end", "fit step") == ("the `return` under `if loss < target:` (train.py:8)", False)


def test_a_turn_that_was_skipped():
    source = """
    def train():
        for x in data:
            all_reduce(x)  # first
            if not x.any():
                continue
            step(x)  # step
    """
    assert ways(source, "step", "first") == ("the `continue` under `if not x.any():` (train.py:4)", True)
    rank, site = rank_at(source, ["step"])
    assert str(gone_on(rank, site)) == "the `continue` under `if not x.any():` (train.py:4)"


def test_a_loop_of_another_length():
    source = """
    def compute():
        for state in self.states:
            gather(state)  # gather
        step()  # step
    """
    assert ways(source, "gather", "step") == ("`for state in self.states:` (train.py:2)", True)


def test_a_rank_that_has_ended():
    rank, site = rank_at(CONDITION, ["alone"])
    assert str(past(rank, site)) == "`if rank == 0:` (train.py:4)"


def test_a_caught_exception():
    source = """
    def train():
        for x in range(9):
            try:
                step(x)  # step
            except RuntimeError:
                failed = True
            all_gather(failed)  # gather
    """
    assert ways(source, "gather", "step") == ("`except RuntimeError:` (train.py:5)", False)


def test_a_condition_in_the_statement():
    source = """
    for x in range(9):
        step(x)  # step
        rank == 0 and barrier()  # barrier
    """
    assert ways(source, "barrier", "step") == ("`rank == 0 and barrier()` (train.py:3)", True)


@pytest.mark.parametrize("condition", [
    "dist.is_initialized()", "world_size > 1", "args.distributed", "cfg.sync and cfg.log", "__name__ == '__main__'"
])  # fmt: skip
def test_conditions_that_all_ranks_judge_alike(condition):
    """What was set for the whole program makes no ranks part."""
    source = CONDITION.replace("rank == 0", condition)
    assert ways(source, "alone", "step") is None


def test_several_that_are_as_likely():
    """A wrong cause is worse than none."""
    source = """
    def train():
        while running():
            step()  # step
            if a:
                break
            if b:
                break
        barrier()  # end
    """
    assert ways(source, "end", "step") is None
    two = source.replace("running()", "True")
    assert ways(two, "end", "step") == (
        "the `break` under `if a:` (train.py:4) or the `break` under `if b:` (line 6)",
        False,
    )


def test_the_same_way():
    """Nothing parts the ways to one line by one chain."""
    assert ways(CONDITION, "alone", "alone") is None


@pytest.mark.parametrize("body", ["", "def other():\n    pass\n", "def train(:\n", "\tx = [\n"])
def test_a_text_that_is_none(body):
    """Not on record, not that function's, or no Python: no cause is read from it."""
    rank, site = rank_at(CONDITION, ["alone"])
    other, its = rank_at(CONDITION, ["step"])
    for one in (rank, other):
        one.process._bodies = dict.fromkeys(one.process._bodies, body)
    assert turn((rank, site), (other, its)) is None


def test_methods_with_decorators():
    """The text of a method is indented, and begins with what decorates it."""
    source = """
class Trainer:
    @torch.no_grad()
    def evaluate(self):
        if self.rank == 0:
            barrier()  # barrier
        all_reduce()  # reduce
"""
    rank, site = rank_at(source, ["barrier"])
    other, its = rank_at(source, ["reduce"])
    for one in (rank, other):
        lines = source.strip("\n").splitlines()
        first = one.process.of(ev.Site)[0]
        written = ev.Site(**{f: getattr(first, f) for f in first.__struct_fields__} | {
            "first": 2, "body": "\n".join(lines[1:]) + "\n"})  # fmt: skip
        one.process.add([written])
    assert str(turn((rank, site), (other, its))) == "`if self.rank == 0:` (train.py:4)"


def test_the_other_arm_of_a_condition():
    """What is done where a condition does not hold is called that, and others may come there, too."""
    source = """
    def main():
        if way and rank == 0:
            barrier()  # barrier
        else:
            step()  # step
        all_reduce()  # reduce
    """
    expected = "the `else` of `if way and rank == 0:` (train.py:2)"
    assert ways(source, "reduce", "step") == (expected, False)
    rank, site = rank_at(source, ["step"])
    assert is_for_some_ranks(rank, site) is False
    assert is_for_some_ranks(*rank_at(source, ["barrier"])) is True


WAYS_IN_WORDS = {
    "`except ValueError:` (train.py:4)": """
    def train():
        try:
            step()  # step
        except ValueError:
            barrier()  # alone
    """,
    "`case 0:` (train.py:3)": """
    def train():
        match rank:
            case 0:
                barrier()  # alone
            case _:
                step()  # step
    """,
    "`if rank == 0:` (train.py:3)": """
    for batch in batches:
        step()  # step
        if rank == 0:
            barrier()  # alone
    """,
    "the `continue` under `except OSError:` (train.py:5)": """
    def train():
        for batch in range(EPOCHS):
            try:
                load()
            except OSError:
                continue
            barrier()  # alone
        step()  # step
    """,
    "the `break` (train.py:4)": """
    def train():
        while True:
            barrier()  # alone
            break
        step()  # step
    """,
}


@pytest.mark.parametrize("expected", WAYS_IN_WORDS)
def test_every_kind_of_place_has_its_words(expected):
    source = WAYS_IN_WORDS[expected]
    assert ways(source, "alone", "step")[0] == ways(source, "step", "alone")[0] == expected
    assert ways(source, "step", "step") is None


@pytest.mark.parametrize("line", ["rank == 0 and barrier()", "x = reduced(x) if rank == 0 else x"])
def test_a_condition_within_the_statement(line):
    """One that names no rank says nothing."""
    source = f"def train():\n    {line}  # alone\n"
    assert is_for_some_ranks(*rank_at(source, ["alone"])) is True
    assert is_for_some_ranks(*rank_at(source.replace("rank", "size"), ["alone"])) is False
