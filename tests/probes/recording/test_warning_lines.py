"""Warnings and errors that come through probes: they name the lines that they name without them."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ddpcheck.probes import all_probes
from ddpcheck.probes.recording import patching, warning_lines


def in_a_fork(body):
    """What a function returns in a process of its own, as JSON."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            with os.fdopen(write, "w") as told:
                json.dump(body(), told)
        except BaseException:
            traceback.print_exc()
        finally:
            getattr(os._exit, "__wrapped__", os._exit)(0)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def trained(store):
    """Trainings that torch warns of, for each line of this function its warnings."""
    data = TensorDataset(torch.arange(8.0).reshape(8, 1))
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule.step()  # before the optimizer's
    schedule.step(2)  # an epoch is deprecated
    DataLoader(data, num_workers=10_000)
    dist.init_process_group("gloo", store=dist.FileStore(store, 1), rank=0, world_size=1)
    model = DistributedDataParallel(net, find_unused_parameters=True)
    model(torch.ones(1, 1)).sum().backward()  # none was unused
    for module in (torch.nn, torch.optim.Optimizer, dist, torch.utils.data.DataLoader):
        warn_at(module, "user")
    torch.nn.Module._apply(net, warning)
    optimizer.zero_grad()
    torch.save(Warning_(), os.devnull)  # pickled by a method that warns of who saves
    dist.destroy_process_group()


def warn_at(module, text):
    warnings.warn(f"{module.__name__} {text}", stacklevel=2)


def warning(tensor):
    warnings.warn("applied", stacklevel=3)
    return tensor


class Warning_:
    def __reduce__(self):
        warnings.warn("saved", stacklevel=3)
        logging.getLogger("saved").warning("saved", stacklevel=3)
        return int, (3,)


def shown(store):
    """The warnings of these trainings: of what, and where; and the lines that a logger names."""
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append([record.getMessage(), os.path.basename(record.pathname), record.lineno])

    logging.getLogger("saved").addHandler(Handler())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trained(store)
    return [[str(one.message)[:60], os.path.basename(one.filename), one.lineno] for one in found] + lines


def test_warnings_name_the_lines_that_they_name_without_probes(tmp_path):
    """Which frames a warning counts is its own affair: those of probes are not among them."""

    def watched():
        all_probes.start(tmp_path, 1 << 20)
        return shown(str(tmp_path / "b"))

    alone = in_a_fork(lambda: shown(str(tmp_path / "a")))
    assert len([one for one in alone if one[1] == os.path.basename(__file__)]) >= 7
    assert in_a_fork(watched) == alone


def test_a_traceback_shows_the_lines_of_probes_as_ever(tmp_path):
    """The file that a frame names is there, and its line is shown."""

    class Owner:
        def fail(self):
            raise ValueError("the program's own")

    def body():
        warning_lines.rename()
        patching.around(Owner, "fail", lambda original: lambda self: original(self))
        try:
            Owner().fail()
        except ValueError:
            return traceback.format_exc()
        return ""

    text = in_a_fork(body)
    assert "patching.py" in text
    assert "return probe(*args, **kwargs)" in text
    assert text.rstrip().endswith("ValueError: the program's own")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_nothing_but_probes_is_renamed():
    """Other modules' code keeps its file's name, and a second time changes nothing."""

    def body():
        warning_lines.rename()
        once = patching.around.__code__
        warning_lines.rename()
        names = [warnings.warn_explicit, all_probes.start, in_a_fork, torch.save]
        return [once == patching.around.__code__, *(getattr(n, "__code__", once).co_filename for n in names)]

    same, _, *files = in_a_fork(body)
    assert same
    assert "importlib_bootstrap" in files[0]
    assert os.path.samefile(files[0], all_probes.__file__)
    assert not any("importlib_bootstrap" in file for file in files[1:])
