"""What is known of zeros without looking at them is what looks at them give."""

from __future__ import annotations

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging import zero_digests
from ddpcheck.probes.digests import fast_digests, gpu_digests

SIZES = (0, 1, 4, 4095, 4096, 4097, 100_000, gpu_digests.LARGE, 3 * gpu_digests.LARGE + 4 * 5)


def test_a_look_in_part_and_a_row_are_as_long_as_there():
    assert zero_digests.WINDOW == fast_digests.WINDOW
    assert zero_digests.ROW == gpu_digests.COLUMNS * gpu_digests.WORD


@pytest.mark.parametrize("size", SIZES)
def test_digests_of_zeros_are_known(size):
    zeros = torch.zeros(size, dtype=torch.uint8)
    (on_gpu,) = gpu_digests.digests([zeros])
    assert on_gpu is not None
    assert zero_digests.of_zeros(size) == {fast_digests.digests([zeros]), on_gpu[: ev.WIDTH]}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.bool])
def test_the_kind_says_how_many_bytes_there_are(dtype):
    zeros = torch.zeros(100, 100, dtype=dtype)
    known = zero_digests.nothing_of(ev.Parameter(name="w", kind=fast_digests.kind(zeros), wrapper=0, reduced=True))
    assert {fast_digests.digests([zeros]), fast_digests.digests([zeros], turn=3)} <= known


def parameter(kind, layout=None):
    return ev.Parameter(name="w", kind=kind, wrapper=0, reduced=True, layout=layout)


def test_of_a_shard_it_is_the_part_of_this_rank():
    layout = ev.Layout(ground="DTensor", shape=(8, 2), placements=("S0",), local=(4, 2))
    part = fast_digests.digests([torch.zeros(4, 2)])
    assert part in zero_digests.nothing_of(parameter("float32[8, 2]", layout))


@pytest.mark.parametrize("second", [None, torch.zeros(4), torch.ones(0)], ids=["no gradient", "zeros", "no elements"])
def test_what_is_nothing_on_a_rank_covers_nothing(second):
    parameters = [parameter("float32[4]") if second is None or len(second) else parameter("float32[0]")]
    one, other = (fast_digests.digests([tensor]) for tensor in (torch.ones(4), second))
    assert not zero_digests.covers(parameters, [one, other], [0])
    assert zero_digests.covers(parameters, [one, one], [0])
    assert not zero_digests.covers(parameters, [one], [0])
