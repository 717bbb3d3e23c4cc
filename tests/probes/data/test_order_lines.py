"""Where a sampler of the user's own makes its order."""

from __future__ import annotations

import pytest
from torch.utils.data import RandomSampler, Sampler

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.data.order_lines import order_lines
from ddpcheck.probes.recording import recorder, user_lines


class Own(Sampler):
    """Its order is made by two methods."""

    def __init__(self):
        self.asked = []

    def __iter__(self):
        return iter(self.part())

    def part(self):
        return self.all()[0::2]

    def all(self):
        return list(range(8))

    def unused(self):
        return []

    @property
    def iter(self):
        raise AssertionError("an attribute that must not be asked for")


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The sites that were written down since."""
    user_lines.reset()
    recorder.begin(tmp_path, 1 << 20)

    def put_down():
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(ev.Site)

    yield put_down
    recorder.stop()
    user_lines.reset()


def test_the_methods_of_an_own_class_are_on_record_with_their_text(recorded):
    """What __iter__ calls, and what that calls; nothing of it is run."""
    numbers = order_lines(Own())
    sites = {site.id: site for site in recorded()}
    assert [sites[number].function for number in numbers] == ["__iter__", "part", "all"]
    assert "[0::2]" in sites[numbers[1]].body


def test_those_of_libraries_are_not(recorded):
    """torch's own samplers, and what is no sampler class at all."""
    assert order_lines(RandomSampler(range(4))) == order_lines(range(4)) == order_lines([1, 2]) == []
