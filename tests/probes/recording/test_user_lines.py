"""Which code is the user's: what is installed is not, wherever it lies."""

from __future__ import annotations

import sys

import pytest
import torch

from ddpcheck.probes.recording import recorder, user_lines

listening: list[bool] = []
"""Whether a test wants to hear of audit events: a hook stays for ever."""


@pytest.mark.parametrize(("file", "users"), [
    ("/home/me/train.py", True),
    ("/home/me/packages/train.py", True),
    # Environments and folders that a path file or PYTHONPATH adds to this one.
    ("/opt/shared/lib/python3.11/site-packages/torch/utils/data/dataloader.py", False),
    ("/usr/lib/python3/dist-packages/numpy/random/mtrand.py", False),
    (pytest.__file__, False),
    (user_lines.__file__, False),
    ("<frozen importlib._bootstrap>", False),
])  # fmt: skip
def test_whose_code_it_is(file, users):
    """A finding names the user's line, and not the library's that it has called."""
    assert user_lines.is_users_file(file) is users


def called_at(frames, depth):
    """The line's number, and the keys of stacks that it is known by, with so many frames of a module in between."""
    code = "def through(n, f):\n    return through(n - 1, f) if n else f()\n"
    names = {"__name__": frames}
    exec(compile(code, torch.nn.modules.module.__file__, "exec"), names)
    return names["through"](depth, user_lines.here)


def test_torchs_frames_make_no_other_line(tmp_path):
    """A line is one and the same, however deep within torch it is asked for; two lines are two."""
    recorder.begin(tmp_path, 1 << 20)
    user_lines.reset()
    try:
        found = [called_at("torch.nn.modules.module", depth) for depth in (1, 9)]
        other = called_at("torch.nn.modules.module", 1)
        assert found[0] == found[1] != other
    finally:
        recorder.stop()
        user_lines.reset()


def test_torchs_code_is_asked_for_once(tmp_path):
    """To read a frame's code is an event for every audit hook: of torch's frames it is not read each time."""
    heard = []
    sys.addaudithook(lambda event, args: heard.append(args) if listening and event == "object.__getattr__" else None)
    recorder.begin(tmp_path, 1 << 20)
    counts = []
    try:
        for depth in (5, 50):
            for again in (False, True):
                listening[:] = [again] * again
                called_at("torch.nn.modules.module", depth)
            listening.clear()
            counts.append(len(heard))
            heard.clear()
    finally:
        recorder.stop()
        user_lines.reset()
    assert counts[0] == counts[1] > 0
