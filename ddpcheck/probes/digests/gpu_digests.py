"""Digests of tensors on a GPU, computed there: two numbers for each travel, and its elements do not.

A tensor's bytes are read as rows of 1024 words of 32 bits. Each word is
multiplied with a key of its column, and a row's products are added up modulo
2**64: two kernels for many megabytes, which move five bytes for each byte. The
rows' sums are few; each of them is mixed with a key of its place, so that the
order counts, and they are added up in turn. A sum does not depend on the order
in which a device adds, so the digest is the same on every device, and only
integers are computed with, so it is of the bits: NaN payloads and the sign of
zero count. (Words of 64 bits would be cheaper, but modulo 2**64 their highest
bit, a sign, counts only by how often it is set.)

The work is queued on the current stream of the tensors' device, behind what
has been queued there before, as any other operation of the user's would be, and
nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ddpcheck.probes.devices.awaited import Awaited, Derived
from ddpcheck.probes.devices.device_numbers import Fetched, sent, together
from ddpcheck.probes.devices.device_time import DeviceTime
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.recording import look_costs
from ddpcheck.probes.recording.unwatchable_moments import is_out_of_memory, is_tracing
from ddpcheck.vocabulary.clock import clock

COLUMNS = 1024
"""Words in a row."""
WORD = 4

PORTION = 32 * 1024 * 1024
"""Bytes that are worked on at a time, with twice as many for what comes in between."""

LARGE = 2 * 1024 * 1024
"""Bytes from which on a tensor is worth kernels of its own; smaller ones are laid side by side, which is a copy."""

LEAST = 2 * 1024 * 1024
"""The smallest portion that is tried where memory is short."""

_CONCATENATED = 128
"""Tensors that one kernel of torch.cat takes."""
_OF_ROWS, _BYTES_OF_A_ROW = 48, 770
"""What mixing the rows' sums takes, as the tests count it."""

_ALL = (1 << 64) - 1
# The finaliser of splitmix64, and a golden ratio to set neighbouring places apart.
GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_OTHER = 0xD6E8FEB86659FD93


class _Room:
    """What the memory of the devices leaves for looks: where it was too little once, less is asked for from then on.

    To be refused memory is dear for the program: torch gives back what it had set aside for it.
    """

    portion: int | None = PORTION
    """None where even the least was too much: nothing is looked at any more."""

    @classmethod
    def was_too_little(cls) -> None:
        """Ask for less next time."""
        portion = (cls.portion or 0) // 4
        cls.portion = portion if portion >= LEAST else None


class Queued(Awaited):
    """Digests that devices are computing."""

    def __init__(self, sizes: Sequence[int | None], sums: Sequence[_Sums]) -> None:
        self._sizes, self._sums = sizes, sums

    def is_there(self) -> bool:
        """Whether all of them have arrived; any thread may ask."""
        return all(one.fetched is None or one.fetched.is_there() for one in self._sums)

    def told(self) -> list[bytes | None]:
        """Sixteen bytes for each tensor; waits for them where they have not arrived yet."""
        sizes, lanes = list(self._sizes), [[0, 0] for _ in self._sizes]
        for one in self._sums:
            numbers = one.fetched.told() if one.fetched is not None else ((), ())
            if numbers is None:  # the device has failed, or has not come so far
                for owner in one.owners:
                    sizes[owner] = None
                continue
            for owner, first, second in zip(one.owners, *numbers, strict=True):
                lanes[owner][0] += first
                lanes[owner][1] += second
        return [
            None
            if size is None
            # One is added: of no bytes at all it would be zero, and that stands for no tensor.
            else b"".join(_mixed((lane + (size + 1) * GOLDEN) & _ALL).to_bytes(8, "little") for lane in both)
            for both, size in zip(lanes, sizes, strict=True)
        ]

    def give_up(self) -> None:
        """None for what has not arrived."""
        for one in self._sums:
            if one.fetched is not None:
                one.fetched.give_up()

    def device_seconds(self) -> float | None:
        """How long the devices have worked on them; None where that is not known yet."""
        each = [one.time.seconds() for one in self._sums]
        return None if None in each else sum(seconds for seconds in each if seconds is not None)


def queued(tensors: Sequence[torch.Tensor], window: tuple[int, int] | None = None) -> Queued:
    """Have a digest computed for each tensor, for its elements in their order; dtype and shape are no part of it.

    None for a tensor whose elements cannot be looked at; of a DTensor it is of the part that this rank has.
    ``window`` is a number of bytes and a turn: of a tensor that is larger, only that many are looked at, at a place
    that each turn moves on.
    """
    sizes: list[int | None] = [None] * len(tensors)
    by_device: dict[torch.device, _Sums] = {}
    began = clock.fine()
    if _Room.portion is None or is_tracing():
        return Queued(sizes, ())
    try:
        _queue(tensors, window, sizes, by_device)
    except Exception as error:
        if is_out_of_memory(error):
            _Room.was_too_little()
        raise
    on_gpus = [sums for sums in by_device.values() if sums.device.type == "cuda"]
    for sums in on_gpus:
        look_costs.add(looks=1, kernels=sums.kernels, bytes=sums.moved, host_waits=0)
        look_costs.add_later(sums.time.seconds)
    if on_gpus:
        look_costs.add(host_milliseconds=(clock.fine() - began) * 1e3)
    return Queued(sizes, list(by_device.values()))


def _queue(
    tensors: Sequence[torch.Tensor],
    window: tuple[int, int] | None,
    sizes: list[int | None],
    by_device: dict[torch.device, _Sums],
) -> None:
    with torch.no_grad():
        for owner, tensor in enumerate(tensors):
            data = _bytes(tensor, window)
            if data is None:
                continue
            sizes[owner] = data.numel()
            if data.device not in by_device:
                by_device[data.device] = _Sums(data.device)
            by_device[data.device].add(owner, data, copied=data.untyped_storage().data_ptr() != _home(tensor))
            del data  # a copy, of a tensor that does not lie in a row, goes before the next one is made
        for sums in by_device.values():
            sums.finish()


def constants(tensors: Sequence[torch.Tensor], size: int) -> Derived:
    """Whether all elements in the first bytes of each tensor are the same; true where that cannot be looked at."""
    with torch.no_grad():
        each = [True if is_tracing() else _is_constant(tensor, size) for tensor in tensors]
        computed = together(each)
    number = sum(one is not True for one in each)
    look_costs.add(kernels=2 * number, bytes=size * number)
    return Derived(lambda found: [one is not False for one in found], computed)


def _is_constant(tensor: torch.Tensor, size: int) -> torch.Tensor | bool:
    plain, width = readable_memory.in_a_row(tensor), tensor.element_size()
    if plain is None or not plain.numel():
        return True
    rows = plain.view(-1)[: size // width].view(torch.uint8).view(-1, width)
    return (rows == rows[0]).all()


def digests(tensors: Sequence[torch.Tensor], window: tuple[int, int] | None = None) -> list[bytes | None]:
    """The same, waited for."""
    return queued(tensors, window).told()


def place_of_turn(size: int, width: int, turn: int) -> int:
    """Where the window of a turn begins: windows lie side by side, and go round."""
    windows = -(-size // width)
    return min((turn % windows) * width, size - width)


def _bytes(tensor: torch.Tensor, window: tuple[int, int] | None) -> torch.Tensor | None:
    """A tensor's bytes in a row, or those of its window."""
    plain = readable_memory.in_a_row(tensor)
    if plain is None:
        return _copied_bytes(tensor, window)
    data = plain.view(-1).view(torch.uint8)
    if window is None:
        return data
    begin, end = _window(data.numel(), window)
    return data[begin:end]


def _copied_bytes(tensor: torch.Tensor, window: tuple[int, int] | None) -> torch.Tensor | None:
    """The same of a tensor whose elements do not lie in a row."""
    source = readable_memory.strided(tensor)
    size = source.numel() * source.element_size() if source is not None else 0
    begin, end = _window(size, window)
    if source is not None and end - begin < size and not source.is_contiguous():
        row = size // source.shape[0]  # only the rows that the window touches are copied
        first = begin // row
        source = source[first : -(-end // row)]
        begin, end = begin - first * row, end - first * row
    plain = readable_memory.local(tensor if source is None else source)
    if plain is None:
        return None
    data = plain.view(-1).view(torch.uint8)
    if source is None:  # the dense form of a sparse tensor
        begin, end = _window(data.numel(), window)
    return data[begin:end]


def _window(size: int, window: tuple[int, int] | None) -> tuple[int, int]:
    """From where to where so many bytes are looked at."""
    if window is None or size <= window[0]:
        return 0, size
    begin = place_of_turn(size, *window)
    return begin, begin + window[0]


def _home(tensor: torch.Tensor) -> int:
    """Where a tensor's own storage lies; 0 for what has none."""
    own = readable_memory.storage(tensor)
    return own.data_ptr() if own is not None else 0


class _Sums:
    """What is computed on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.time = DeviceTime(device)
        self.owners: list[int] = []
        """Whose each piece is: a tensor may have several."""
        self.fetched: Fetched | None = None
        self.kernels = self.moved = 0
        """Kernels that were queued, and bytes that they read and write."""
        self._keys = sent(_column_keys(COLUMNS), device)
        self._rows: list[torch.Tensor] = []
        """The sums of rows, piece by piece."""
        self._counts: list[int] = []
        self._begins: list[int] = []
        """Which of its tensor's rows a piece begins with."""
        self._portion = _Room.portion or LEAST
        self._small: list[tuple[int, int, torch.Tensor]] = []
        """What is to be laid side by side: owner, its first row, its bytes."""
        self._waiting = 0

    def add(self, owner: int, data: torch.Tensor, copied: bool) -> None:
        """Take bytes that lie in a row; of a copy no more is held than has to be."""
        width, at = COLUMNS * WORD, 0
        if data.numel() >= LARGE and data.storage_offset() % WORD == data.data_ptr() % WORD == 0:
            at = data.numel() // width * width
            rows = self._portion // width
            whole = data[:at].view(torch.int32).view(-1, COLUMNS)
            for begin in range(0, len(whole), rows):
                self._add_rows(whole[begin : begin + rows])
                self._note(owner, begin, min(rows, len(whole) - begin))
            data = data[at:].clone() if copied else data[at:]
        for begin in range(0, data.numel(), self._portion):
            part = data[begin : begin + self._portion]
            if self._waiting and self._waiting + part.numel() > self._portion:
                self._lay_side_by_side()
            self._small.append((owner, (at + begin) // width, part))
            self._waiting += part.numel()

    def finish(self) -> None:
        """Queue what is left, and have the result sent."""
        self._lay_side_by_side()
        if self._rows:
            self.fetched = Fetched(self._totals())
            self._rows.clear()
        del self._keys
        self.time.end()

    def _note(self, owner: int, begin: int, rows: int) -> None:
        self.owners.append(owner)
        self._begins.append(begin)
        self._counts.append(rows)

    def _add_rows(self, words: torch.Tensor) -> None:
        self._rows.append((words * self._keys).sum(1))
        self.kernels += 2
        self.moved += 5 * words.nbytes

    def _lay_side_by_side(self) -> None:
        """Each piece begins with a row of its own; a row that it does not fill ends with zeros."""
        width = COLUMNS * WORD
        if not self._small:
            return
        zeros = torch.zeros(width, dtype=torch.uint8, device=self.device)
        parts: list[torch.Tensor] = []
        for owner, begin, data in self._small:
            rows = -(-data.numel() // width)
            parts += [data, zeros[: rows * width - data.numel()]]
            self._note(owner, begin, rows)
        self.kernels += 1 + -(-len(parts) // _CONCATENATED)
        self.moved += 2 * self._waiting
        self._small, self._waiting = [], 0
        self._add_rows(torch.cat(parts).view(torch.int32).view(-1, COLUMNS))

    def _totals(self) -> torch.Tensor:
        """Both sums of each piece, as two rows."""
        rows = torch.cat(self._rows)
        numbers = sent(_on_host([self._shifts(), self._counts, self._ends()]), self.device)
        shifts, counts, ends = numbers.unbind()
        keys = torch.arange(1, len(rows) + 1, dtype=torch.int64, device=self.device)
        keys += torch.repeat_interleave(shifts, counts, output_size=len(rows))
        keys *= signed(GOLDEN)
        mix(keys)
        keys ^= rows
        mix(keys)
        self.kernels += _OF_ROWS + -(-len(self._rows) // _CONCATENATED)
        self.moved += _BYTES_OF_A_ROW * len(rows)
        first = _of_pieces(keys, ends)
        keys *= signed(_OTHER)
        mix(keys)
        return torch.stack([first, _of_pieces(keys, ends)])

    def _ends(self) -> list[int]:
        """The place of each piece's last row."""
        ends, at = [], 0
        for rows in self._counts:
            at += rows
            ends.append(at - 1)
        return ends

    def _shifts(self) -> list[int]:
        """What makes of a row's place here its place in its tensor."""
        return [
            begin - (end + 1 - rows) for begin, rows, end in zip(self._begins, self._counts, self._ends(), strict=True)
        ]


def _of_pieces(values: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The sum of each piece's values, modulo 2**64."""
    up_to = values.cumsum(0)[ends]
    return torch.cat([up_to[:1], up_to[1:] - up_to[:-1]])


@lru_cache(maxsize=8)
def _column_keys(columns: int) -> torch.Tensor:
    """Odd, so that no difference of one word is lost."""
    return _on_host([signed(_mixed((n + 1) * GOLDEN & _ALL) | 1) for n in range(columns)])


def _on_host(numbers: list[Any]) -> torch.Tensor:
    """A program may have chosen another device by default."""
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")


def mix(values: torch.Tensor) -> None:
    """Let every bit of each value depend on all of its bits, in place; one to one."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= _shifted(values, shift)
        values *= signed(factor)
    values ^= _shifted(values, 31)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Shifted to the right without the sign, which int64 would bring in."""
    moved = values >> by
    moved &= (1 << (64 - by)) - 1
    return moved


def _mixed(value: int) -> int:
    """The same for one number."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        value = ((value ^ (value >> shift)) * factor) & _ALL
    return value ^ (value >> 31)


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
