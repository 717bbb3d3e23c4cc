"""Tests of what this torch has not got are skipped, and no others."""

from __future__ import annotations

import pytest

from tests.torch_names import missing_names, skip_without

PROGRAM = """
import torch
from os import path
from torch.distributed import fsdp, no_such_thing
from torch.no_such_module import anything
def main():
    from torch.nn.parallel import DistributedDataParallel
"""


def test_names_that_are_not_there():
    """Names of modules, and modules; wherever they are imported."""
    assert missing_names(PROGRAM) == ["torch.distributed.no_such_thing", "torch.no_such_module.anything"]


def test_a_program_that_has_all_it_wants():
    skip_without("from torch.distributed import fsdp")


def test_the_reason():
    with pytest.raises(pytest.skip.Exception, match=r"has no torch.nn.nothing, torch.nn.void"):
        skip_without("from torch.nn import nothing, void")
