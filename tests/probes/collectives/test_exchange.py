"""What an operator of c10d is called with, and what of it has to be equal on all ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ddpcheck.probes.collectives.exchange import Exchange, kind_of

T = torch.zeros(4)


@pytest.mark.parametrize(("operator", "kind"), [
    ("allreduce_", "all_reduce"),
    ("allreduce_coalesced_", "all_reduce"),
    ("_allgather_base_", "all_gather_into_tensor"),
    ("allgather_into_tensor_coalesced_", "all_gather_into_tensor"),
    ("reduce_scatter_", "reduce_scatter"),
    ("_reduce_scatter_base_", "reduce_scatter_tensor"),
    ("alltoall_", "all_to_all"),
    ("alltoall_base_", "all_to_all_single"),
    ("recv_any_source_", "recv"),
    ("monitored_barrier_", "monitored_barrier"),
    ("one_of_tomorrow_", "one_of_tomorrow"),
])  # fmt: skip
def test_operators_are_called_as_the_functions_are(operator, kind):
    """By the names that programs know."""
    assert kind_of(operator) == kind


@pytest.mark.parametrize(("kind", "given", "received", "sent"), [
    ("all_reduce", {"tensors": [T]}, 1, 1),
    ("all_gather", {"output_tensors": [[T, T]], "input_tensors": [T]}, 2, 1),
    ("all_gather_into_tensor", {"output_tensor": T, "input_tensor": T}, 1, 1),
    ("scatter", {"output_tensors": [T], "input_tensors": [[]]}, 1, 0),
    ("all_to_all_single", {"output": T, "input": T, "input_split_sizes": []}, 1, 1),
    ("send", {"tensors": [T], "tag": 0}, 0, 1),
    ("recv", {"tensors": [T], "tag": 0}, 1, 0),
    ("barrier", {"tensor": T}, 0, 0),
])  # fmt: skip
def test_what_goes_where(kind, given, received, sent):
    """What is reduced in place is on both sides; a barrier is over nothing."""
    exchange = Exchange(kind, given)
    assert (len(exchange.received), len(exchange.sent)) == (received, sent)


@pytest.mark.parametrize(("kind", "given", "detail"), [
    ("all_reduce", {"tensors": [torch.zeros(2, 1, 3)]}, "float32[2, 3] ?"),
    ("all_reduce", {"tensors": [torch.zeros(1, 3)]}, "float32 x 3 ?"),
    ("all_reduce", {"tensors": [T, torch.zeros(2)]}, "float32 x 4 + float32 x 2 ?"),
    ("broadcast", {"tensors": [torch.zeros(2, 3)], "root_rank": 0}, "float32 x 6"),
    ("all_gather", {"output_tensors": [[T, T]], "input_tensors": [T]}, "float32 x 4"),
    ("all_gather", {"output_tensors": [[T, torch.zeros(3)]], "input_tensors": [T]}, "float32"),
    ("reduce_scatter", {"output_tensors": [T], "input_tensors": [[T, T]]}, "float32 x 4 ?"),
    ("reduce_scatter", {"output_tensors": [T], "input_tensors": [[T, torch.zeros(3)]]}, "float32 ?"),
    ("scatter", {"output_tensors": [T], "input_tensors": [[]]}, "float32 x 4"),
    ("all_to_all", {"output_tensors": [T, T], "input_tensors": [T, T]}, ""),
    ("all_to_all_single", {"output": T, "input": T, "input_split_sizes": []}, "float32"),
    ("all_to_all_single", {"output": T, "input": T, "input_split_sizes": [1, 3]}, "float32"),
    ("send", {"tensors": [T], "tag": 3}, "tag 3"),
    ("recv", {"tensors": [T], "tag": 0}, ""),
])  # fmt: skip
def test_what_has_to_be_equal(kind, given, detail):
    """The size, where ranks have to have the same; the shape as well, where elements are paired by place."""
    assert Exchange(kind, given).detail == detail


@pytest.mark.parametrize(("kind", "first", "second"), [
    ("all_reduce", torch.zeros(2, 3), torch.zeros(3, 2)),
    ("broadcast", torch.zeros(4), torch.zeros(5)),
    ("broadcast", torch.zeros(4), torch.zeros(4, dtype=torch.int64)),
])  # fmt: skip
def test_what_is_described_once_is_not_taken_for_another(kind, first, second):
    """Shape, dtype and reduction make the difference, and what is known is said again."""

    def words(tensor, how=dist.ReduceOp.SUM):
        exchange = Exchange(kind, {"tensors": [tensor]})
        exchange._named = {"op": how}
        return exchange.detail

    assert words(first) != words(second)
    assert words(first) == words(torch.zeros_like(first))
    if kind == "all_reduce":
        assert words(first, dist.ReduceOp.MAX) != words(first)
