"""A checkpoint that was cut off is said to be that, wherever its end is."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from ddpcheck.checkpoint_trials import load_failures
from ddpcheck.checkpoint_trials.load_failures import state_of


def what_is_said(path, weights_only):
    """Of a file, after torch has failed to load it."""
    try:
        torch.load(path, weights_only=weights_only)
    except Exception as error:
        return state_of(str(path), f"{type(error).__name__}: {error}")
    return "loaded"


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_file_of_the_old_format_at_every_length(tmp_path, weights_only):
    """What torch raises differs from byte to byte, and its keys are as long as addresses are."""
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(3, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    said = set()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        said.add(what_is_said(path, weights_only))
    assert said == {"cut off"}
    path.write_bytes(whole)
    assert what_is_said(path, weights_only) == "loaded"


def test_what_is_refused_is_not_cut_off(tmp_path):
    """A whole file with a class that may not be loaded; and a pickle that torch has not written."""
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(3, 2), path, _use_new_zipfile_serialization=False)
    assert what_is_said(path, True) == "refused"
    path.write_bytes(pickle.dumps({"weight": [1.0, 2.0]}, protocol=2))
    assert what_is_said(path, True) != "cut off"


def test_a_damaged_pickle_is_not_cut_off(tmp_path):
    """Bytes in its midst that are no pickle's, and more behind them."""
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(3, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"\xff" * 20 + whole[60:])
    assert not load_failures._ends_within_a_pickle(str(path))


def test_the_magic_number_is_torchs():
    assert load_failures.MAGIC_NUMBER == torch.serialization.MAGIC_NUMBER
