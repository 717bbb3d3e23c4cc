"""A model's state as facts, and where two tensors differ."""

from __future__ import annotations

import math

import pytest
import torch

from ddpcheck.probes.ddp import model_state
from ddpcheck.probes.digests.exact_digests import digest, tensor_bytes
from ddpcheck.probes.layouts.held_alike import HeldAlike

nan, inf = math.nan, math.inf


def differ(mine, reference, atol=0.0, rtol=0.0):
    reference = torch.as_tensor(reference)
    mine = torch.as_tensor(mine)
    return model_state.worst_difference(mine, bytes(tensor_bytes(reference)), {"atol": atol, "rtol": rtol})


# --- the worst difference


def test_the_worst_element_is_found_with_its_place():
    """Size and place are those of the element that is farthest away, and all that differ are counted."""
    worst = differ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.5, 3.0], [4.0, 5.0, -6.0]])
    assert (worst.size, worst.place, worst.elements, worst.of) == (12.0, (1, 2), 2, 6)
    assert (worst.mine, worst.reference) == ("6", "-6")


def test_equal_tensors_do_not_differ():
    """Equal elements count as none."""
    worst = differ([1.0, 2.0], [1.0, 2.0])
    assert (worst.size, worst.elements) == (0.0, 0)


def test_negative_zero_is_zero():
    """-0.0 and 0.0 are the same number, though not the same bits."""
    assert differ([0.0, -0.0], [-0.0, 0.0]).elements == 0


@pytest.mark.parametrize(
    ("mine", "reference", "elements", "size", "place"),
    [
        ([nan, 1.0], [nan, 1.0], 0, 0.0, None),
        ([1.0, nan], [1.0, 2.0], 1, inf, (1,)),
        ([1.0, 2.0], [1.0, nan], 1, inf, (1,)),
        ([inf, 1.0], [inf, 1.0], 0, 0.0, None),
        ([inf], [-inf], 1, inf, (0,)),
        ([5.0, inf], [1.0, 2.0], 2, inf, (1,)),
        ([5.0, 1.0], [1.0, inf], 2, inf, (1,)),
        ([nan], [inf], 1, inf, (0,)),
    ],
)
def test_what_is_not_finite(mine, reference, elements, size, place):
    """NaN equals NaN and infinity infinity; against anything else they are infinitely far, and the worst there is."""
    worst = differ(mine, reference)
    assert (worst.elements, worst.size) == (elements, size)
    assert place is None or worst.place == place


@pytest.mark.parametrize("reference", [nan, inf, 1.0])
def test_no_tolerance_makes_up_for_what_is_not_finite(reference):
    """A NaN against a number differs under any tolerance, also beside an infinite reference."""
    assert differ([nan, 1.0], [1.0, 1.0], atol=1e9, rtol=1e9).elements == 1
    assert differ([5.0], [reference], rtol=0.1).elements == 1


@pytest.mark.parametrize(
    ("atol", "rtol", "elements"), [(0.0, 0.0, 2), (0.25, 0.0, 1), (0.5, 0.0, 0), (0.0, 0.25, 1), (0.25, 0.25, 0)]
)
def test_the_tolerance_is_absolute_plus_relative_to_the_reference(atol, rtol, elements):
    """An element may differ by atol + rtol * |reference|, and no more."""
    assert differ([1.5, -2.25], [1.0, -2.0], atol=atol, rtol=rtol).elements == elements


def test_the_tolerance_is_relative_to_the_reference_alone():
    """The rank's own, larger value does not widen what is allowed."""
    assert differ([2.0], [1.0], rtol=0.5).elements == 1
    assert differ([1.0], [2.0], rtol=0.5).elements == 0


def test_the_element_that_is_shown_is_one_that_is_not_allowed():
    """With a tolerance, the worst element is the worst of those beyond it."""
    worst = differ([1000.5, 1.25], [1000.0, 1.0], rtol=0.001)
    assert (worst.elements, worst.place, worst.size) == (1, (1,), 0.25)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8], ids=str)
def test_every_type_is_compared_in_its_own_values(dtype):
    """Elements of any type are read back as what they are."""
    worst = differ(torch.tensor([1, 2], dtype=dtype), torch.tensor([1, 4], dtype=dtype))
    assert (worst.size, worst.place, worst.mine, worst.reference) == (2.0, (1,), "2", "4")


def test_flags_are_compared():
    """Booleans differ by one, and are shown as such."""
    worst = differ([True, False], [True, True])
    assert (worst.size, worst.place, worst.mine, worst.reference) == (1.0, (1,), "False", "True")


@pytest.mark.parametrize("number", [2**53, 2**62, -(2**63)])
def test_large_integers_are_compared_exactly(number):
    """Integers that a float cannot tell apart are still different numbers."""
    assert differ(torch.tensor([number + 1, 5]), torch.tensor([number, 5])).elements == 1


def test_complex_numbers_are_compared_by_distance():
    """Complex elements differ by the distance in the plane; conjugate views are read as what they show."""
    worst = differ(torch.tensor([3 + 4j]), torch.tensor([0j]))
    assert (worst.size, worst.elements) == (5.0, 1)
    assert differ(torch.tensor([2 + 2j, 4j]), torch.tensor([1 + 1j, 2j])).scale is None
    assert differ(torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])).elements == 0


def test_single_numbers_have_no_place():
    """A tensor without dimensions differs at no index."""
    worst = differ(torch.tensor(1.0), torch.tensor(2.0))
    assert (worst.place, worst.of, worst.scale) == ((), 1, None)


def test_the_layout_does_not_count():
    """Transposed tensors are compared element by element, in the order of their indices."""
    plain = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    other = torch.tensor([[0.0, 1.0], [2.0, 9.0]])
    for mine in (plain.t().contiguous().t(), torch.nn.Parameter(plain)):
        worst = differ(mine, other)
        assert (worst.size, worst.place, worst.elements) == (6.0, (1, 1), 1)


# --- one factor


@pytest.mark.parametrize("factor", [3.0, 0.5, -1.0])
def test_one_factor_between_both_is_found(factor):
    """Where every element is the same multiple, the factor is told."""
    reference = torch.tensor([1.0, -2.0, 0.0, 5.0])
    assert differ(reference * factor, reference).scale == pytest.approx(factor)
    assert differ(reference[:2] * factor, reference[:2]).scale == pytest.approx(factor)


@pytest.mark.parametrize(
    ("mine", "reference"),
    [([2.0, 5.0], [1.0, 2.0]), ([2.0], [1.0]), ([2.0, 0.0], [1.0, 0.0]), ([nan, 2.0], [1.0, 1.0])],
)
def test_different_ratios_are_no_factor(mine, reference):
    """Ratios that differ, or fewer than two of them, say nothing."""
    assert differ(mine, reference).scale is None


# --- facts


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))


def test_parameters_and_buffers_are_named_as_the_model_names_them():
    """Buffers are told apart from parameters by their name."""
    assert [name for name, _ in model_state.parameters(net())] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [name for name, _ in model_state.buffers(net())] == [
        "1.running_mean (buffer)",
        "1.running_var (buffer)",
        "1.num_batches_tracked (buffer)",
    ]


def test_gradients_are_those_of_trainable_parameters():
    """A frozen parameter has no gradient to agree on; an unused one has None."""
    model = net()
    model[0].bias.requires_grad_(False)
    model[0](torch.ones(1, 2)).sum().backward()
    found = dict(model_state.gradients(model))
    assert list(found) == ["0.weight", "1.weight", "1.bias"]
    assert found["0.weight"] is model[0].weight.grad
    assert found["1.weight"] is None


def test_a_tensor_is_described_by_digest_type_and_shape():
    """The facts of a model hold names, numbers and text; no tensor."""
    model = net()
    facts = model_state.facts(
        model, [*model_state.parameters(model), *model_state.buffers(model), ("none", None)], rtol=0.5, atol=0.25
    )
    weight = facts.tensors["0.weight"]
    assert (weight.digest, weight.dtype, weight.shape) == (digest(model[0].weight), "float32", (2, 2))
    assert weight.present
    assert facts.tensors["1.num_batches_tracked (buffer)"].dtype == "int64"
    assert not facts.tensors["none"].present
    assert (facts.wrapped, facts.rtol, facts.atol) == (False, 0.5, 0.25)


def test_a_model_without_memory_cannot_be_compared():
    """A model on the meta device is refused with what to do."""
    with pytest.raises(ValueError, match="materialise the model"):
        model_state.facts(net(), [("w", torch.empty(2, device="meta"))])


# --- answers


def test_ranks_compare_with_what_the_reference_wrote(tmp_path):
    """The reference rank writes its tensors down, and every other compares its own with them, by name."""
    tensors = [
        [("w", torch.tensor([1.0, 2.0])), ("skipped", torch.ones(1)), ("b", torch.tensor(3))],
        [("w", torch.tensor([1.0, 4.0])), ("skipped", torch.zeros(1)), ("b", torch.tensor(3))],
    ]
    ranks = [model_state.answers(own, tmp_path, rank) for rank, own in enumerate(tensors)]
    about = {"copies": [["w", 1, [0, 1]], ["b", 1, [0, 1]]], "atol": 0.0, "rtol": 0.0}
    for rank in (ranks[1], ranks[0]):
        assert rank["write"](about) is None
    found = ranks[0]["compare"](about)
    assert ranks[1]["compare"](about) == {}
    assert list(found) == ["w", "b"]
    assert (found["w"].size, found["w"].mine, found["w"].reference) == (2.0, "2", "4")
    assert found["b"].elements == 0


# --- kinds of tensors


def described(tensor):
    (fact,) = model_state._described([("w", tensor)], {"w": HeldAlike()}).values()
    return fact


def compared(mine, reference, tmp_path):
    """What a rank says of its tensor beside rank 0's."""
    about = {"copies": [["w", 0, [0, 1]]], "atol": 0.0, "rtol": 0.0}
    model_state.answers([("w", reference)], tmp_path, 0)["write"](about)
    return model_state.answers([("w", mine)], tmp_path, 1)["compare"](about)["w"]


def of_embedding(*rows):
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor(rows)).sum().backward()
    return embedding.weight.grad


@pytest.mark.filterwarnings("ignore")
def test_sparse_gradients_are_compared_by_coordinates_and_values(tmp_path):
    """In whatever order rows came; a row that one rank alone has is one of zeros on the other."""
    assert described(of_embedding(1, 2, 1)).digest == described(of_embedding(2, 1, 1)).digest
    assert described(of_embedding(1, 2, 1)).dtype == "sparse float32"
    assert described(of_embedding(1, 2)).digest != described(of_embedding(1, 3)).digest
    worst = compared(of_embedding(1, 2, 2), of_embedding(1, 3), tmp_path)
    assert (worst.elements, worst.of, worst.size, worst.place) == (6, 30, 2.0, (2, 0))
    assert (worst.mine, worst.reference) == ("2", "0")
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0, 3), (10, 3))
    assert compared(of_embedding(4), nothing, tmp_path).place == (4, 0)
    assert compared(nothing, of_embedding(4), tmp_path).elements == 3
    assert compared(nothing, nothing, tmp_path).elements == 0


@pytest.mark.filterwarnings("ignore")
def test_zeros_that_are_written_down_are_zeros(tmp_path):
    """Other bytes, and no other numbers."""
    wide = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.tensor([1.0, 0.0]), (5,))
    narrow = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([1.0]), (5,))
    assert compared(wide, narrow, tmp_path).elements == 0


@pytest.mark.filterwarnings("ignore")
def test_a_sparse_tensor_takes_the_memory_of_what_it_holds(tmp_path):
    """Its dense form would be of 2 GB."""

    def large(value):
        return torch.sparse_coo_tensor(torch.tensor([[5, 900_000]]), torch.full((2, 512), value), (1_000_000, 512))

    worst = compared(large(1.0), large(2.0), tmp_path)
    assert (worst.elements, worst.of, worst.place) == (1024, 512_000_000, (5, 0))


KINDS = {
    "csr": lambda n: torch.tensor([[1.0, 0.0], [0.0, 4.0 + n]]).to_sparse_csr(),
    "bsr": lambda n: torch.tensor([[1.0, 0.0], [0.0, 4.0 + n]]).to_sparse_bsr((1, 1)),
    "mkldnn": lambda n: torch.tensor([[1.0, 2.0 + n]]).to_mkldnn(),
    "float8": lambda n: torch.tensor([1.0, 2.0 + 2 * n]).to(torch.float8_e4m3fn),
    "quantized": lambda n: torch.quantize_per_tensor(torch.tensor([1.0, 2.0 + n]), 0.1, 0, torch.quint8),
    "nan": lambda n: torch.tensor([nan, 2.0 + n]).to_sparse(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds(kind, tmp_path):
    """What torch has no operation for is compared by its numbers all the same."""
    make = KINDS[kind]
    assert described(make(0)).digest == described(make(0)).digest != described(make(1)).digest
    assert compared(make(1), make(0), tmp_path).elements == 1
    assert compared(make(0), make(0), tmp_path).elements == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout):
    """It is said that they are not compared, and why."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    with pytest.raises(ValueError, match="does not compare it"):
        described(nested)


@pytest.mark.filterwarnings("ignore:.*jit")
def test_a_scripted_module_has_its_parameters():
    """What holds its parts is no dictionary."""
    scripted = torch.jit.script(torch.nn.Linear(2, 1))
    assert [name for name, _ in model_state.parameters(scripted)] == ["weight", "bias"]
