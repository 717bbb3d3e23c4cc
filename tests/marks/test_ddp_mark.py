"""The ddp mark: what it may say, and the sentence for everything else."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.marks import ddp_mark
from ddpcheck.pytest_plugin import pytest_pycollect_makemodule

# Not in one piece: the plugin looks for that text, to start its runtime while pytest collects.
MARK = "@pytest.mark." + "ddp"


def read(*closest_first):
    """Read marks given by their keywords alone."""
    return ddp_mark.read([((), keywords) for keywords in closest_first])


def complaint(*closest_first):
    with pytest.raises(ddp_mark.BadMark) as caught:
        read(*closest_first)
    return str(caught.value)


# --- what is valid


def test_a_bare_mark_has_the_documented_defaults():
    """A mark without keywords means two gloo ranks on the CPU, with the session's timeout."""
    assert read({}) == ddp_mark.Mark(world_sizes=(2,), listed=False, backend="gloo", device="cpu", timeout=None)


def test_every_keyword_is_read():
    """Each keyword of a mark arrives in the value."""
    mark = read({"world_size": 4, "backend": "nccl", "device": "cuda", "timeout": 7.5})
    assert mark == ddp_mark.Mark(world_sizes=(4,), listed=False, backend="nccl", device="cuda", timeout=7.5)


@pytest.mark.parametrize("sizes", [[2, 4], (2, 4)])
def test_world_sizes_may_be_listed(sizes):
    """A list or a tuple of world sizes keeps its order, and asks for one item each."""
    assert read({"world_size": sizes}) == ddp_mark.Mark(world_sizes=tuple(sizes), listed=True)


def test_a_list_of_one_is_still_a_list():
    """A list with one world size multiplies the test, so that its id names the size."""
    assert read({"world_size": [1]}).listed


def test_a_timeout_in_whole_seconds_is_a_float():
    """An int timeout is read as float seconds."""
    timeout = read({"timeout": 5}).timeout
    assert timeout == 5.0
    assert isinstance(timeout, float)


def test_the_closest_mark_wins_keyword_by_keyword():
    """A keyword counts where it stands closest to the test; the others come from farther marks."""
    method, class_, module = {"timeout": 1.0}, {"world_size": 3, "timeout": 2.0}, {"world_size": 4, "device": "cuda"}
    assert read(method, class_, module) == ddp_mark.Mark(world_sizes=(3,), device="cuda", timeout=1.0)


def test_a_close_none_leaves_the_timeout_to_the_option():
    """timeout=None on the closest mark takes back the timeout of a farther one."""
    assert read({"timeout": None}, {"timeout": 3.0}).timeout is None


def test_nccl_may_find_its_device_in_another_mark():
    """Whether backend and device fit together is judged after the marks are merged."""
    assert read({"backend": "nccl"}, {"device": "cuda"}).backend == "nccl"


# --- what is wrong

WRONG = {
    "zero ranks": ({"world_size": 0}, "needs 1 rank or more"),
    "negative ranks": ({"world_size": -1}, "needs 1 rank or more"),
    "ranks in words": ({"world_size": "two"}, "a whole number of ranks, such as 2"),
    "a flag for ranks": ({"world_size": True}, "a whole number of ranks, such as 2"),
    "a float for ranks": ({"world_size": 2.0}, "a whole number of ranks, such as 2"),
    "a set for ranks": ({"world_size": {2, 4}}, "a list such as [2, 4]"),
    "no ranks at all": ({"world_size": None}, "a whole number of ranks, such as 2"),
    "an empty list": ({"world_size": []}, "the list is empty"),
    "an empty tuple": ({"world_size": ()}, "the list is empty"),
    "one size twice": ({"world_size": [2, 2]}, "name each once"),
    "a size in words": ({"world_size": [2, "x"]}, "a list such as [2, 4]"),
    "a flag among sizes": ({"world_size": [2, True]}, "a list such as [2, 4]"),
    "zero among sizes": ({"world_size": [2, 0]}, "needs 1 rank or more"),
    "a misspelt backend": ({"backend": "glo"}, "did you mean 'gloo'?"),
    "another backend": ({"backend": "mpi"}, "it knows gloo and nccl"),
    "no backend": ({"backend": None}, "it knows gloo and nccl"),
    "backends in a list": ({"backend": ["gloo"]}, "gloo and nccl"),
    "one GPU by number": ({"device": "cuda:0"}, "say 'cuda'"),
    "a misspelt device": ({"device": "cud"}, "did you mean 'cuda'?"),
    "another device": ({"device": "xla"}, "it knows cpu and cuda"),
    "no time": ({"timeout": 0}, "a number of seconds above 0"),
    "negative time": ({"timeout": -1}, "a number of seconds above 0"),
    "time as text": ({"timeout": "1"}, "a number of seconds above 0"),
    "a flag for a time": ({"timeout": True}, "a number of seconds above 0"),
    "time that is no number": ({"timeout": math.nan}, "a number of seconds above 0"),
    "time without end": ({"timeout": math.inf}, "a number of seconds above 0"),
}


@pytest.mark.parametrize(("keywords", "fix"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_named_with_its_fix(keywords, fix):
    """A wrong value gives one sentence that shows the mark as written, and says what to write."""
    ((name, value),) = keywords.items()
    text = complaint(keywords)
    assert text.startswith(f"{MARK}({name}={value!r}): ")
    assert fix in text
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text


def test_a_misspelt_keyword_is_named_with_the_one_that_was_meant():
    """A keyword that is nearly right gives the right one, and the whole mark."""
    text = complaint({"word_size": 2, "timeout": 1})
    assert text.startswith(f"{MARK}(word_size=2, timeout=1) has no keyword 'word_size': ")
    assert "did you mean 'world_size'?" in text
    assert text.endswith("It knows world_size, backend, device and timeout.")


def test_a_foreign_keyword_is_named_with_all_that_there_are():
    """A keyword like no other gives the list of keywords."""
    text = complaint({"zzz": 2})
    assert text == f"{MARK}(zzz=2) has no keyword 'zzz': it knows world_size, backend, device and timeout."


def test_nccl_needs_gpus():
    """NCCL on the CPU is refused, with both ways out."""
    for keywords in ({"backend": "nccl"}, {"backend": "nccl", "device": "cpu"}):
        text = complaint(keywords)
        assert text.startswith(f"{MARK}(backend='nccl') needs device='cuda'")
        assert "use backend='gloo'" in text


@pytest.mark.parametrize(
    ("args", "fix"),
    [
        ((2,), "write world_size=2."),
        (([2, 4],), "write world_size=[2, 4]."),
        ((2, "nccl", "cuda", 5), "write world_size=2, backend='nccl', device='cuda', timeout=5."),
    ],
)
def test_positional_arguments_are_refused_with_their_keywords(args, fix):
    """A mark with positional arguments is told the keywords that they would have."""
    with pytest.raises(ddp_mark.BadMark) as caught:
        ddp_mark.read([(args, {})])
    shown = ", ".join(map(repr, args))
    assert str(caught.value) == f"{MARK}({shown}) takes keywords only: {fix}"


def test_a_wrong_mark_is_an_error_where_a_closer_one_outranks_it():
    """What stands in a farther mark must be valid, even where it does not count."""
    assert "needs 1 rank or more" in complaint({"world_size": 2}, {"world_size": 0})


# --- whatever it says

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text("aglo2", max_size=5)
values = st.sampled_from([2, [2, 4], "gloo", "nccl", "cpu", "cuda"]) | scalars | st.lists(scalars, max_size=3)


@settings(deadline=None, database=None, max_examples=60)
@given(st.dictionaries(st.sampled_from([*ddp_mark.KEYWORDS, "word_size"]), values))
def test_every_mark_is_read_or_refused(keywords):
    """Whatever a mark says, it is a valid value or a BadMark that shows the mark, and no other error."""
    try:
        mark = read(keywords)
    except ddp_mark.BadMark as error:
        assert str(error).startswith(f"{MARK}(")  # noqa: PT017
        return
    assert "word_size" not in keywords
    assert mark.world_sizes
    assert all(type(size) is int and size >= 1 for size in mark.world_sizes)
    assert len(set(mark.world_sizes)) == len(mark.world_sizes)
    assert mark.backend in ddp_mark.BACKENDS
    assert mark.device in ddp_mark.DEVICES
    assert mark.timeout is None or 0 < mark.timeout < math.inf


def test_a_test_file_that_cannot_be_read_is_left_to_pytest(tmp_path):
    """Its own import of the file is an error of that file alone."""
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(hasplugin=lambda name: False), option=SimpleNamespace(collectonly=False)
    )
    pytest_pycollect_makemodule(tmp_path / "test_gone.py", SimpleNamespace(config=config))
