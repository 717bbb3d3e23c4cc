"""A line is numbered with who has called its function: what a finding's call chain is read from."""

from __future__ import annotations

import runpy
import sys
import types

import pytest

from ddpcheck.evidence import Site
from ddpcheck.judging.world import Process
from ddpcheck.probes.recording import numbered_lines, recorder, user_lines

SCRIPT = """\
import library

def helper(ask):
    return ask()

def train(ask):
    first = helper(ask)
    second = helper(ask)
    third = library.Trainer().fit(lambda: helper(
        ask
    ))
    return first, second, third

def again(ask, times):
    return again(ask, times - 1) if times else helper(ask)
"""
LIBRARY = """\
class Trainer:
    def fit(self, step):
        return self._run(step)

    def _run(self, step):
        return step()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A program's module, with an installed library that calls it back."""
    folder = tmp_path / "site-packages" / "gym"
    folder.mkdir(parents=True)
    (folder / "trainer.py").write_text(LIBRARY)
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    library = types.ModuleType("library")
    exec(compile(LIBRARY, str(folder / "trainer.py"), "exec"), vars(library))
    monkeypatch.setitem(sys.modules, "library", library)
    module = types.ModuleType("script")
    exec(compile(SCRIPT, str(tmp_path / "script.py"), "exec"), vars(module))
    return module


@pytest.fixture
def kept(monkeypatch):
    """What is recorded here, as a process."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    before = user_lines.numbering()
    user_lines.reset()
    yield lambda: _process(writer)
    user_lines.number_by(before)


def _process(writer):
    process = Process()
    process.add(writer.kept)
    return process


def chain(process, number):
    """The script's part of a chain: line numbers, and the libraries between."""
    return [one for place in process.where(number).chain if place.file == "script.py"
            for one in (place.line, *place.through)]  # fmt: skip


def test_one_line_has_a_number_for_each_way_to_it(script, kept):
    """A helper that is called from several lines: each call names its caller."""
    first, second, third = script.train(user_lines.here)
    assert len({first, second, third}) == 3
    assert [chain(kept(), n) for n in (first, second)] == [[7, 4], [8, 4]]
    assert kept().where(first) == kept().where(second)  # the same line
    assert {user_lines.line_alone(n) for n in (first, second, third)} == {first}


def test_a_library_between_is_named_by_the_function_that_was_called(script, kept):
    *_, third = script.train(user_lines.here)
    name = "Trainer.fit" if sys.version_info >= (3, 11) else "fit"
    assert chain(kept(), third) == [9, f"gym: {name}", 9, 4]


def test_each_line_of_a_chain_is_written_once(script, kept):
    for _ in range(3):
        script.train(user_lines.here)
    sites = [site for site in kept().of(Site) if site.file == "script.py"]
    assert len({(s.caller, s.line, s.function, s.through) for s in sites}) == len(sites)
    ids = [site.id for site in kept().of(Site)]
    assert ids == list(range(1, len(ids) + 1))


def test_the_text_of_a_function_is_written_with_its_first_line(script, kept):
    """What a judge reads conditions from: the file may be another one later, or on another host."""
    script.train(user_lines.here)
    bodies = [s.body for s in kept().of(Site) if s.file == "script.py" and s.body]
    assert bodies == [
        SCRIPT[SCRIPT.index("def train") : SCRIPT.index("def again")],
        SCRIPT[SCRIPT.index("def helper") : SCRIPT.index("def train")],
        "    third = library.Trainer().fit(lambda: helper(\n        ask\n    ))\n",
    ]


def test_a_deep_recursion_is_told_in_short(script, kept):
    number = script.again(user_lines.here, 300)
    told = kept().where(number).chain
    assert len(told) == user_lines.LONGEST
    assert chain(kept(), number)[-3:] == [15, 15, 4]


def test_of_very_many_lines_the_callers_are_not_told(script, kept, monkeypatch):
    monkeypatch.setattr(numbered_lines, "MOST", 0)
    first, second, _ = script.train(user_lines.here)
    assert first == second
    assert chain(kept(), first) == [4]


def test_what_runs_the_script_is_no_part_of_a_chain(script, kept, tmp_path):
    """A debugger, a notebook's kernel, a test: the script's own level is where every chain begins."""
    (tmp_path / "main.py").write_text("number = train(here)[0]\n")
    ran = runpy.run_path("main.py", {"train": script.train, "here": user_lines.here}, run_name="__main__")
    places = [(place.file, place.line) for place in kept().where(ran["number"]).chain]
    assert places == [("main.py", 1), ("script.py", 7), ("script.py", 4)]
