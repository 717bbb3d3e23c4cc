"""What each element of the loss counts, weighed while its gradient passes, in windows that are looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ddpcheck.evidence import LossWeights, Term
from ddpcheck.probes.data.loader_pass import Tally
from ddpcheck.probes.devices.device_numbers import Fetched
from ddpcheck.probes.moments import loss_terms, windows
from ddpcheck.probes.moments.loss_terms import Found, NotFollowed
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import shielded

CHEAP = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Elements of a gradient that is looked at in every run, by where it is: fewer than what made it has gone through."""

ALIKE = 0.01
"""By how much of itself the weight of elements may vary within one backward, as rounding in 16 bits makes it."""

LARGEST = 1 << 22
"""Elements of a gradient that is looked at, where they are not one number seen many times."""

NOT_ALIKE = "the elements of one backward() have different weights already"
"""As those of classes with a weight of their own."""


class _Seen:
    """What is kept between the backward() calls of this process."""

    inside = False
    batch: tuple[int, int] | None = None
    """The pass and the number of its batches at the last one that was weighed."""


class _Backward:
    """One backward(): its parts, and what was read of each."""

    def __init__(self, site: int) -> None:
        self.site = site
        self.why = ""
        self.fresh = False
        """A loader has handed out a batch since the one before."""
        self.continued = False
        self.value: torch.Tensor | None = None
        self.parts: list[Found] = []
        """Without their nodes, once the backward is over: these would hold the graph."""
        self.factors: list[str] = []
        """Part by part, the operations that have scaled it, and their places among all that have scaled some part."""
        self.scales: list[list[int]] = []
        self.ratios: dict[int, torch.Tensor] = {}
        """By place: what the operation multiplies by."""
        self.read: dict[int, torch.Tensor] = {}
        """By the place of a part: the elements that count, and the least and the greatest gradient of one."""

    def terms(self, read: dict[int, list[float] | None], ratios: dict[int, float | None]) -> list[Term]:
        """Its parts, by what was read of each; raises NotFollowed."""
        if self.why:
            raise NotFollowed(self.why)
        found = []
        for place, part in enumerate(self.parts):
            known = read.get(place)
            if known is None:
                raise NotFollowed("not every part of the loss was given a gradient")
            elements, least, most, *before = known
            if not math.isfinite(most):
                raise NotFollowed("its gradients are not finite")
            if elements and most - least > ALIKE * most:
                raise NotFollowed(NOT_ALIKE)
            found.append(
                Term(
                    by=part.by,
                    elements=int(elements),
                    weight=(least + most) / 2 if elements else 0.0,
                    kind=part.kind,
                    factors=self.factors[place],
                    scales=_known([ratios.get(one) for one in self.scales[place]]),
                    # A mask leaves what it lets through as it is.
                    scaled=part.scaled and not (before and math.isclose(before[0], most, rel_tol=1e-6)),
                )
            )
        return found


def watch() -> None:
    """Weigh backwards from now on."""
    gradient_events.BACKWARD.also(_begins)


def _begins(given: Any, with_gradients: Any) -> Callable[[bool], None] | None:
    writer = recorder.current()
    if writer is None or _Seen.inside or not windows.is_looked_at():  # one within one is a part of it
        return None
    handles: list[Any] = []
    with recorder.silence(), windows.timed():
        one = _prepare(given, with_gradients)
        handles += _listen(one)
    _Seen.inside = True

    def is_over(is_well: bool) -> None:
        _Seen.inside = False
        for handle in handles:
            handle.remove()
        one.parts = [part._replace(node=None, chain=()) for part in one.parts]
        if is_well and recorder.current() is writer:
            _write(writer, one)

    return is_over


def _prepare(given: Any, with_gradients: Any) -> _Backward:
    """Find the parts of the loss."""
    one = _Backward(user_lines.here())
    _look_at_batch(one)
    losses = [given] if isinstance(given, torch.Tensor) else given
    if not isinstance(losses, (list, tuple)) or not all(isinstance(loss, torch.Tensor) for loss in losses):
        one.why = "what backward() was given is no tensor and no list of tensors"  # an iterator is used up by a look
        return one
    if _is_continued(losses, with_gradients):
        one.continued = True
        return one
    if len(losses) == 1 and losses[0].numel() == 1 and type(losses[0]) is torch.Tensor and not losses[0].is_meta:
        one.value = losses[0].detach().double().reshape(())
    try:
        one.parts = loss_terms.found_in(losses)
    except NotFollowed as error:
        one.why = str(error)
    return one


def _is_continued(losses: Sequence[torch.Tensor], gradients: Any) -> bool:
    """Whether backward() goes on with gradients of what is no loss, as a stage of a pipeline does."""
    given = gradients if isinstance(gradients, (list, tuple)) else [gradients] * len(losses)
    pairs = list(zip(losses, given, strict=False))
    return bool(pairs) and all(isinstance(g, torch.Tensor) and loss.numel() > 1 for loss, g in pairs)


def _look_at_batch(one: _Backward) -> None:
    """Note whether a loader has handed out a batch since the backward() before."""
    latest = Tally.latest
    batch = (id(latest), latest.batches) if latest is not None else None
    one.fresh = batch is not None and batch != _Seen.batch
    _Seen.batch = batch


def _listen(one: _Backward) -> list[Any]:
    """Have the gradients read as they pass; what is to be removed afterwards."""
    one.factors = [part.factors for part in one.parts]
    places = {node: place for place, node in enumerate(dict.fromkeys(n for part in one.parts for n in part.chain))}
    one.scales = [[places[node] for node in part.chain] for part in one.parts]
    handles = [part.node.register_hook(_reader(one, place, part)) for place, part in enumerate(one.parts)]
    # What one part alone is scaled by has no other part to be compared with.
    among = places.items() if len(one.parts) > 1 else ()
    return handles + [node.register_hook(_scale_reader(one, place)) for node, place in among]


def _scale_reader(one: _Backward, place: int) -> Callable[..., None]:

    def read(gradients_in: Any, gradients_out: Any) -> None:
        onward = next((g for g in gradients_in if g is not None), None)
        incoming = next((g for g in gradients_out if g is not None), None)
        if type(onward) is torch.Tensor and type(incoming) is torch.Tensor and onward.numel() == incoming.numel() == 1:
            with recorder.silence(), torch.no_grad():
                one.ratios[place] = (onward.double().reshape(()) / incoming.double().reshape(())).abs()

    return shielded(read)


def _known(ratios: list[float | None]) -> list[float]:
    """None of them where one is not known."""
    known = [one for one in ratios if one is not None and math.isfinite(one)]
    return known if len(known) == len(ratios) else []


def _reader(one: _Backward, place: int, part: Found) -> Callable[..., None]:

    def read(gradients_in: Any, gradients_out: Any) -> None:
        with recorder.silence(), torch.no_grad(), windows.timed():
            try:
                one.read[place] = _weight(part, gradients_in, gradients_out)
            except NotFollowed as error:
                one.why = str(error)

    return shielded(read)


def _weight(part: Found, gradients_in: Any, gradients_out: Any) -> torch.Tensor:
    """Three numbers, on the device of the gradient: nothing here waits for it."""
    # A hook is told what goes on to the inputs, and what has come from the outputs.
    onward = next((g for g in gradients_in if g is not None), None)
    gradient = next((g for g in gradients_out if g is not None), None)
    if type(gradient) is not torch.Tensor or gradient.is_sparse or gradient.device.type not in ("cpu", "cuda"):
        raise NotFollowed("the gradient of the loss is no plain tensor")
    if part.by in ("NllLoss", "NllLoss2D"):
        if type(onward) is not torch.Tensor:
            raise NotFollowed("the gradient of the loss is no plain tensor")
        if onward.numel() > CHEAP[onward.device.type] and not windows.is_asked_for():
            raise NotFollowed(f"the loss has more than {CHEAP[onward.device.type]:,} elements: --oracle weighs it")
        # For each target the one entry that is not zero, which has the sign of the loss's factor turned.
        each = torch.maximum(onward.amax(1).abs(), onward.amin(1).abs()) if onward.dim() > 1 else onward.abs().amax()
        return _spread(each)
    if part.scaled and type(onward) is torch.Tensor and onward.shape == gradient.shape:
        # After the factors: what a mask has taken out counts nothing.
        return torch.cat([_spread(onward.detach()), _spread(gradient.detach())[2:]])
    if part.kind == "elements" or gradient.dim():
        return _spread(gradient.detach())
    each = gradient.detach().double().abs()
    if type(onward) is not torch.Tensor:
        raise NotFollowed("the gradient of the loss is no plain tensor")
    weight = each / onward.numel() if part.kind == "mean" else each
    return torch.stack([torch.full_like(weight, onward.numel()), weight, weight])


def _spread(each: torch.Tensor) -> torch.Tensor:
    """How many elements have a weight, and the least and the greatest of them."""
    times = 1
    for place, step in enumerate(each.stride()):
        if step == 0 and each.shape[place] > 1:  # one number, seen many times: it is looked at once
            times *= each.shape[place]
            each = each.narrow(place, 0, 1)
    if each.numel() > LARGEST:
        raise NotFollowed(f"the loss has more than {LARGEST:,} elements")
    if not each.numel():
        return each.new_zeros(3, dtype=torch.float64)
    each = each.double().abs()
    counts = each != 0  # an element that is masked, or whose target is ignored, has none
    most = each.max()
    least = each.masked_fill_(~counts, math.inf).min()
    return torch.stack([counts.sum().to(most) * times, torch.minimum(least, most), most])


def _write(writer: recorder.Recorder, one: _Backward) -> None:
    record = partial(_record, one, writer.next(), windows.backwards())
    read = {place: Fetched(value) for place, value in one.read.items()}
    ratios = {place: Fetched(ratio) for place, ratio in one.ratios.items()}
    value = Fetched(one.value) if one.value is not None else None
    later_records.write(writer, record, read=read, ratios=ratios, value=value)


def _record(
    one: _Backward,
    stamp: dict[str, Any],
    backward: int,
    read: dict[int, list[float] | None],
    ratios: dict[int, float | None],
    value: float | None,
) -> LossWeights:
    made = partial(
        LossWeights, **stamp, backward=backward, site=one.site, fresh=one.fresh, continued=one.continued, value=value
    )
    try:
        return made(terms=one.terms(read, ratios))
    except NotFollowed as error:
        return made(why=str(error))
