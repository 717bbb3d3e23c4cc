"""CUDA_VISIBLE_DEVICES is read as CUDA reads it, and put back as the caller had it."""

from __future__ import annotations

import os

import pytest

from ddpcheck.gpus import visible_devices

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIG = "MIG-c7f1a9a4-1c5e-5c43-9c0a-6a6ae3d8c1c7"


@pytest.mark.parametrize(
    ("value", "number", "tokens"),
    [
        (None, 3, ("0", "1", "2")),
        (None, 0, ()),
        ("", 0, ()),
        ("2,0", 2, ("2", "0")),
        (" 1 , 3 ", 2, ("1", "3")),
        (f"{UUID},{MIG}", 2, (UUID, MIG)),
        ("GPU-8932", 1, ("GPU-8932",)),
        ("MIG-GPU-8932f937/1/0", 1, ("MIG-GPU-8932f937/1/0",)),
        ("0,-1,1", 1, ("0",)),
        ("-1", 0, ()),
        ("NoDevFiles", 0, ()),
        ("0,1,9", 2, ("0", "1")),  # there is no GPU 9, and CUDA ends its list there
        ("+1,02", 2, ("1", "2")),
    ],
)
def test_what_the_variable_lists(value, number, tokens):
    """Indices, UUIDs and their beginnings, MIG instances, or nothing at all; never more than CUDA sees."""
    assert visible_devices.tokens(value, number) == tokens


@pytest.mark.parametrize("before", [None, "", "3,1"])
def test_the_callers_value_is_kept(monkeypatch, before):
    """However often this process narrows its view, others get the caller's, and so does this one afterwards."""
    monkeypatch.delenv(visible_devices.VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(visible_devices.VARIABLE, before)
    callers = {k: v for k, v in os.environ.items() if k == visible_devices.VARIABLE}
    visible_devices.narrow(("3",))
    visible_devices.narrow(("1",))
    assert os.environ[visible_devices.VARIABLE] == "1"
    called = visible_devices.as_called(os.environ)
    assert {k: v for k, v in called.items() if k == visible_devices.VARIABLE} == callers
    assert called.keys() | {visible_devices.VARIABLE} == os.environ.keys()
    visible_devices.widen()
    visible_devices.widen()
    assert os.environ.get(visible_devices.VARIABLE) == before
    assert visible_devices.as_called(os.environ) == dict(os.environ)
