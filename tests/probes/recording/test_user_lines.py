"""Which code is the user's: what is installed is not, wherever it lies."""

from __future__ import annotations

import pytest

from ddpcheck.probes.recording import user_lines


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
