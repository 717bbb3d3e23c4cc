"""The parts of a loss whose elements have a weight: the operations of autograd from its end to where these are made.

From the end of the loss, what is followed is linear with the same factor for
all elements: sums of terms, factors that are one number, means and sums. Where
that ends there is a criterion of torch, which takes the mean or the sum of its
elements itself, or an operation that has made the elements: the gradient
that comes in there is what each of them counts. Nothing that autograd has
saved is unpacked: that may run a part of the forward again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

_ELEMENTWISE = re.compile(
    r"(Neg|Clone|Alias|ToCopy|View|ReshapeAlias|UnsafeView|Squeeze|Unsqueeze|Permute|T)Backward\d*$"
)
"""What leaves elements as they are, or turns all of their signs."""
_GATHERING = re.compile(r"(Stack|Cat|Select|Slice|Unbind|Expand)Backward\d*$")
_REDUCING = re.compile(r"(Mean|Sum)Backward\d*$")
_ADDING = re.compile(r"(Add|Sub|Rsub)Backward\d*$")
_FACTOR = re.compile(r"(Mul|Div)Backward\d*$")
_PASSED_ON = "_DDPSinkBackward"
"""What DDP puts behind the outputs of a forward: each goes in and comes out."""

_CRITERION = re.compile(
    r"((?:NllLoss|NllLoss2D|MseLoss|SmoothL1Loss|HuberLoss|SoftMarginLoss|MultiMarginLoss|MultilabelMarginLoss"
    r"|BinaryCrossEntropy|BinaryCrossEntropyWithLogits))Backward\d*$"
)
_MEAN, _SUM = 1, 2

MOST_NODES, MOST_TERMS = 256, 16


class NotFollowed(Exception):
    """The loss is no sum of means and sums, as far as that can be seen: the text says why, as a clause."""


class Found(NamedTuple):
    """One part of a loss."""

    node: Any
    """The operation whose incoming gradient tells what the elements count."""
    by: str
    kind: Literal["mean", "sum", "elements"]
    scaled: bool
    chain: tuple[Any, ...] = ()
    """The operations that have scaled the whole part, from the loss's end on."""

    @property
    def factors(self) -> str:
        """The same as signs."""
        return "".join(_sign(node.name()) for node in self.chain)


def found_in(losses: Iterable[Any]) -> list[Found]:
    """The parts of a loss, in an order that depends on the program alone; raises NotFollowed."""
    none: tuple[Any, ...] = ()
    waiting = [(loss.grad_fn, loss.output_nr, none) for loss in losses if loss.grad_fn is not None]
    seen: set[tuple[Any, int]] = set()
    found: dict[Any, Found] = {}
    while waiting:
        node, output, chain = waiting.pop(0)
        if (node, output) in seen:
            continue
        seen.add((node, output))
        if len(seen) > MOST_NODES:
            raise NotFollowed("the loss is made of too many operations")
        further = _further(node, output)
        if further is not None:
            chain = (*chain, node) if _sign(node.name()) else chain
            waiting += [(*one, chain) for one in further]
            continue
        if node.name().endswith("AccumulateGrad"):
            continue  # a parameter itself, as in `0 * p.sum()`: no sample has a part in it
        found[node] = _part(node, output)._replace(chain=chain)
        if len(found) > MOST_TERMS:
            raise NotFollowed(f"the loss has more than {MOST_TERMS} terms")
    if not found:
        raise NotFollowed("the loss was not made by operations of autograd")
    return list(found.values())


def _further(node: Any, output: int) -> list[tuple[Any, int]] | None:
    """Where a linear operation's values come from; None for one at which following ends."""
    name = node.name()
    inputs = [(child, number) for child, number in node.next_functions if child is not None]
    if name == _PASSED_ON:
        return [node.next_functions[output]] if len(node.next_functions) > output else None
    if _ELEMENTWISE.match(name) or _GATHERING.match(name) or _REDUCING.match(name):
        return inputs
    if not _is_one_number(node, output):
        return None
    if _ADDING.match(name):
        return inputs
    if _FACTOR.match(name):
        if len(inputs) != 1 or (name.startswith("Div") and node.next_functions[0][0] is None):
            raise NotFollowed("two parts of the loss that depend on the model are multiplied, or divided by each other")
        return inputs
    return None


def _part(node: Any, output: int) -> Found:
    name = node.name()
    criterion = _CRITERION.match(name)
    if criterion is not None:
        reduction = getattr(node, "_saved_reduction", None)
        if reduction is None:
            raise NotFollowed("this torch does not say whether a criterion takes the mean or the sum")
        kind: Literal["mean", "sum", "elements"] = (
            "mean" if reduction == _MEAN else "sum" if reduction == _SUM else "elements"
        )
        return Found(node, criterion.group(1), kind, scaled=False)
    if _is_one_number(node, output):
        raise NotFollowed(f"the loss is one number that {_called(name)} has made, which is no mean or sum of elements")
    return Found(node, _called(name), "elements", scaled=bool(_FACTOR.match(name) or _ADDING.match(name)))


def _sign(name: str) -> str:
    """``*`` or ``/`` for a factor; nothing for what is none."""
    if not _FACTOR.match(name):
        return ""
    return "*" if name.startswith("Mul") else "/"


def _is_one_number(node: Any, output: int) -> bool:
    """Whether what an operation has made has no dimensions."""
    shapes = [tuple(one.shape) for one in getattr(node, "_input_metadata", ())]
    if len(shapes) <= output:
        raise NotFollowed("this torch does not say what shapes the operations of autograd have")
    return shapes[output] == ()


def _called(name: str) -> str:
    return re.sub(r"Backward\d*$", "", name.rpartition("::")[2]) or name
