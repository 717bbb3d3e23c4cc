"""The rules by themselves: a table of operators as torch has it, and what is said of operands that lie apart."""

from __future__ import annotations

import pytest

from ddpcheck.device_simulation import operator_rules as operators_module
from ddpcheck.device_simulation.operator_rules import NoTable, Operator, operators, parsed
from ddpcheck.device_simulation.placement_rules import Operand, refusal

TABLE = """\
- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  device_check: NoCheck   # TensorIterator
  structured_delegate: add.out

- func: mm(Tensor self, Tensor mat2) -> Tensor
  structured_delegate: mm.out
  variants: function, method

- func: index_select(Tensor self, int dim, Tensor index) -> Tensor
  dispatch:
    CPU: index_select_cpu_

- func: view(Tensor(a) self, SymInt[] size) -> Tensor(a)
  device_check: NoCheck
  device_guard: False

- func: _foreach_add.List(Tensor[] self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]
  device_check: NoCheck   # foreach kernels fall back to slow path when tensor are on different devices
"""


def test_table() -> None:
    """Each entry has its check, and the name that torch gives its kernel in an error."""
    assert parsed(TABLE) == {
        "add.Tensor": Operator("operands", "wrapper_CUDA_add_Tensor"),
        "mm": Operator("same", "wrapper_CUDA_mm"),
        "index_select": Operator("same", "wrapper_CUDA__index_select"),
        "view": Operator("none", "wrapper_CUDA__view"),
        "_foreach_add.List": Operator("lists", "wrapper_CUDA_List__foreach_add"),
    }


def test_table_of_the_installed_torch() -> None:
    """It is there, whole, and says of a few well-known operators what GPUs are known to say."""
    table = operators()
    assert len(table) > 2000
    assert table["addmm"] == Operator("same", "wrapper_CUDA_addmm")
    assert table["nll_loss_forward"].method == "wrapper_CUDA_nll_loss_forward"
    assert table["mul.Tensor"].check == "operands"


def test_torch_without_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence says what is missing."""
    operators.cache_clear()
    monkeypatch.setattr(operators_module, "find_spec", lambda name: None)
    with pytest.raises(NoTable, match=r"native_functions\.yaml"):
        operators()


SAME = Operator("same", "wrapper_CUDA_mm")
OLD, NEW = (2, 6), (2, 9)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (
            OLD,
            "found at least two devices, cuda:1 and cpu! (when checking argument for argument mat2 in method wrapper",
        ),
        (
            NEW,
            "but got mat2 is on cpu, different from other tensors on cuda:1 (when checking argument in method wrapper",
        ),
    ],
)
def test_one_device(version: tuple[int, int], words: str) -> None:
    """The first argument that is apart is named."""
    apart = [Operand("self", "cuda:1", 2), Operand("mat2", "cpu", 2)]
    assert words in (refusal("mm", SAME, apart, version) or "")
    together = [Operand("self", "cuda:1", 2), Operand("mat2", "cuda:1", 2)]
    assert refusal("mm", SAME, together, version) is None


def test_what_is_written_to_is_looked_at_first() -> None:
    """torch checks ``out=`` before the other arguments."""
    operands = [Operand("self", "cuda:0", 2), Operand("mat2", "cuda:0", 2), Operand("out", "cpu", 2, output=True)]
    assert "got self is on cuda:0, different from other tensors on cpu" in (
        refusal("mm.out", SAME, operands, NEW) or ""
    )


ELEMENTWISE = Operator("operands", "")


@pytest.mark.parametrize(
    ("name", "operands", "refused"),
    [
        ("add.Tensor", [Operand("self", "cuda:0", 2), Operand("other", "cpu", 0)], False),
        ("add.Tensor", [Operand("self", "cuda:0", 2), Operand("other", "cpu", 1)], True),
        ("add.Tensor", [Operand("self", "cuda:0", 2), Operand("other", "cuda:1", 0)], True),
        ("add.Tensor", [Operand("self", "cpu", 2), Operand("other", "cpu", 2)], False),
        ("add_.Tensor", [Operand("self", "cpu", 0), Operand("other", "cuda:0", 0)], True),
        ("lerp.Tensor", [Operand("self", "cuda:0", 2), Operand("end", "cpu", 0), Operand("weight", "cpu", 0)], True),
        (
            "addcdiv",
            [Operand("self", "cuda:0", 2), Operand("tensor1", "cuda:0", 2), Operand("tensor2", "cpu", 0)],
            True,
        ),
    ],
)
def test_elementwise(name: str, operands: list[Operand], refused: bool) -> None:
    """A scalar of the CPU may stand beside tensors of a GPU, and nothing else may."""
    assert (refusal(name, ELEMENTWISE, operands, NEW) is not None) is refused


def test_lists_are_judged_place_by_place() -> None:
    """Devices may differ along a list, and not between lists."""
    lists = Operator("lists", "")

    def operands(second: str) -> list[Operand]:
        pairs = [("self", "cuda:0"), ("self", "cuda:1"), ("other", "cuda:0"), ("other", second)]
        return [Operand(name, device, 2) for name, device in pairs]

    assert refusal("_foreach_add.List", lists, operands("cuda:1"), NEW) is None
    assert "cuda:1 and cuda:0!" in (refusal("_foreach_add.List", lists, operands("cuda:0"), NEW) or "")
    assert refusal("_foreach_copy_", lists, operands("cuda:0"), NEW) is None
