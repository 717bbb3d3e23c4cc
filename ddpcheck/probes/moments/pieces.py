"""Which pieces of logical tensors a parameter has: of plain tensors and DTensors one, of FSDP's flat ones several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import Layout, Piece, Pieces
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.digests import readable_memory, sketches
from ddpcheck.probes.layouts import declared, models
from ddpcheck.probes.moments import flat_parameters
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.tensor_references import Reference, reference


class Held(NamedTuple):
    """One piece that a parameter has."""

    number: int
    shape: tuple[int, ...]
    offset: tuple[int, ...] | None
    """None where nobody knows where it lies in the whole."""
    run: slice | None
    """Of a flat parameter, the elements that are this piece."""
    whole: bool = False
    """It stands for the whole tensor, of which the parameter is a part."""

    def as_whole(self) -> Held:
        """The whole tensor that it is a piece of."""
        return self._replace(offset=(0,) * len(self.shape), run=None, whole=True)

    def sketch(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The sketch of what a tensor that lies like the parameter, or a DTensor, has of it; None where it has none."""
        plain = readable_memory.strided(tensor)
        if plain is None:
            return _of_sparse(tensor) if tensor.layout is torch.sparse_coo else None
        offset = self.offset
        if readable_memory.is_dtensor(tensor):
            placed = declared.place_of(tensor)
            offset = placed[0] if placed is not None else None
        if offset is None or not plain.is_floating_point() or plain.device.type not in readable_memory.LOOKED_AT:
            return None
        if self.run is not None:
            return sketches.of_run(plain.reshape(-1)[self.run], self.shape, offset[0])
        return sketches.of_box(plain, self.shape, offset)


def _of_sparse(tensor: torch.Tensor) -> torch.Tensor | None:
    return sketches.of_sparse(tensor) if type(tensor) is torch.Tensor and tensor.is_floating_point() else None


class _Known(NamedTuple):
    parameter: Reference
    placements: Any
    shape: torch.Size
    held: list[Held]


_known: dict[int, _Known] = {}
"""By the id of a parameter."""
_writer: recorder.Recorder | None = None
_count = 0


def of(writer: recorder.Recorder, parameters: Iterable[torch.Tensor]) -> list[list[Held]]:
    """The pieces that each parameter has; those that are new are written down."""
    global _writer, _count
    if _writer is not writer:
        _writer = writer
        _known.clear()
        _count = 0
    listed = list(parameters)
    new = [one for one in listed if not _is_known(one)]
    if new:
        places, flat = models.places(writer), flat_parameters.cuts(models.alive())
        written: list[Piece] = []
        for parameter in new:
            held = []
            for piece, run in _pieces(writer, parameter, places, flat):
                held.append(_held(piece, run))
                written.append(piece)
                _count += 1
            _known[id(parameter)] = _Known(reference(parameter), _placements(parameter), parameter.shape, held)
            reference(parameter).when_gone(partial(_known.pop, id(parameter), None))
        writer.write(Pieces(**writer.next(), pieces=written))
    return [_known[id(one)].held for one in listed]


def _is_known(parameter: torch.Tensor) -> bool:
    found = _known.get(id(parameter))
    return (
        found is not None
        and found.parameter() is parameter
        and found.placements == _placements(parameter)
        and found.shape == parameter.shape
    )


def _placements(parameter: torch.Tensor) -> Any:
    return getattr(parameter, "placements", None)


def _held(piece: Piece, run: slice | None) -> Held:
    layout = piece.layout
    unknown = layout is not None and layout.sharded and not piece.offset
    return Held(piece.piece, piece.shape, None if unknown else piece.offset, run)


def _pieces(
    writer: recorder.Recorder,
    parameter: torch.Tensor,
    places: dict[int, models.Place],
    flat: dict[int, list[flat_parameters.Cut]],
) -> Iterator[tuple[Piece, slice | None]]:
    dtype = str(parameter.dtype).removeprefix("torch.")
    cuts = flat.get(id(parameter)) or _in_memory(parameter, places)
    for cut in cuts:
        piece = Piece(
            piece=_count,
            model=cut.model,
            path=cut.path,
            dtype=dtype,
            shape=cut.shape,
            sizes=(cut.run.stop - cut.run.start,),
            offset=(cut.begin,),
            is_run=True,
            layout=declared.layout_of(writer, parameter),
        )
        yield piece, cut.run
    if cuts or id(parameter) in flat:
        return
    at = places.get(id(parameter))
    layout = declared.layout_of(writer, parameter, whole=True)
    owner = WRAPPERS.owner(parameter)
    piece = Piece(
        piece=_count,
        model=at.model if at is not None else -1,
        path=at.path if at is not None else "",
        dtype=dtype,
        shape=layout.shape if layout is not None else tuple(parameter.shape),
        sizes=layout.local if layout is not None else tuple(parameter.shape),
        offset=_offset(layout, parameter),
        layout=layout if layout is not None else at.layout if at is not None else None,
        wrapper=owner[1].number if owner is not None and WRAPPERS.is_reduced(parameter) else None,
    )
    yield piece, None


def _in_memory(parameter: torch.Tensor, places: dict[int, models.Place]) -> list[flat_parameters.Cut]:
    """Of a plain tensor of no model: the parameters that lie in its memory."""
    if id(parameter) in places or type(parameter) not in flat_parameters.PLAIN:
        return []
    try:
        return flat_parameters.in_memory(parameter, models.alive())
    except Exception as error:  # a tensor without memory
        signal_exceptions.let_through(error)
        return []


def _offset(layout: Layout | None, parameter: torch.Tensor) -> tuple[int, ...]:
    """Nothing where nobody knows it, as of a flat parameter of which no logical tensor is known."""
    if layout is None:
        return (0,) * parameter.dim()
    return layout.offset or ()
