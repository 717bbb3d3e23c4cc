"""What decides the length and direction of a step, and whether there is one: rates, scales, state and counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import stages, tensors
from ddpcheck.facts.holdings import Ground, Holding, Look, Values, at
from ddpcheck.facts.readers import models_of
from ddpcheck.facts.tensors import Copies
from ddpcheck.facts.windows import Window, groups_of, windows
from ddpcheck.judging import step_alignment
from ddpcheck.judging.first_forwards import numbered
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.zero_digests import nothing_of
from ddpcheck.vocabulary.model import CallSite

_UNKNOWN = {b"", ev.ABSENT, ev.UNSEEN}


SLICES = Ground("slices", whom="ranks that hold shards of one model")


@once_per_world
def of(world: World) -> list[Holding]:
    """The settings that ranks must step by alike: of copies, of the slices of one tensor, and of a model's stages."""
    found: list[Holding] = []
    for held in tensors.copies(world):
        if held.parameters:
            found += _of_copies(held)
    for optimizer in step_alignment.optimizers(world):
        found += _of_slices(optimizer)
    return [*found, *_steps(world), *_scales_of_stages(world)]


# --- of copies


def _of_copies(held: Copies) -> Iterator[Holding]:
    optimizer, places = held.optimizer, held.parameters
    found = windows(optimizer, optimizer.common())
    groups = groups_of(optimizer, places)
    names, rates = ["learning rate"] * len(groups), [one.rates(groups) for one in found]
    yield _settings(held, "rates", names, found, rates, (f"rates of optimizer {optimizer.number}",))
    scales = [one.scales for one in found]
    yield _settings(held, "scale", ["gradient scale"], found, [tuple((scale,) for scale in each) for each in scales])
    # A scaler that saw other gradients steps otherwise, and so does all that follows.
    unequal = next((turn for turn, each in enumerate(scales) if len({*each} - {None}) > 1), len(found))
    yield from _state(held, found[:unequal])
    yield from _counters(held, found)


def _settings(
    held: Copies,
    moment: str,
    names: Sequence[str],
    found: Sequence[Window],
    values: Sequence[tuple[tuple[object, ...], ...]],
    links: tuple[str, ...] = (),
) -> Holding:
    optimizer = held.optimizer
    return Holding(
        moment,
        tuple(rank.rank for rank in optimizer.ranks),
        names,
        range(len(names)),
        held.ground._replace(severity="error", is_rounded=False),
        [Look(one.number, each, one.line, one) for one, each in zip(found, values, strict=True)],
        empty=lambda _: frozenset({0.0}),
        words={"optimizer": optimizer.kind},
        links=links or _links(held),
        optimizer=optimizer.number,
    )


def _links(held: Copies) -> tuple[str, ...]:
    return (f"optimizer {held.optimizer.number}", *held.optimizer.wrapper_links())


def _state(held: Copies, found: Sequence[Window]) -> Iterator[Holding]:
    """The optimizer's state, key by key, as far as several ranks have it: what one rank has alone is its share.

    What an optimizer of the user's own keeps may be each rank's affair, as long as the parameters come out the same.
    """
    optimizer = held.optimizer
    first = optimizer.described[0]
    keys = list(dict.fromkeys(key for one in found for key in one.states))
    rounded = held.ground.is_rounded and any(one.is_on_device(place) for one in found[:1] for place in held.parameters)
    if first.sharded or not keys or rounded:
        return
    size = len(first.parameters)

    def values(one: Window) -> tuple[Values, ...]:
        joined = tuple(
            b"".join(one.states[key][holder] if key in one.states else ev.UNSEEN * size for key in keys)
            for holder in range(len(one.steps))
        )
        if len(set(joined)) == 1:
            return joined
        apart = range(size) if first.torchs else step_alignment.differing(one.parameters)
        wanted = {turn * size + place for turn in range(len(keys)) for place in apart}
        return tuple(
            tuple(_known(at(digests, place)) if place in wanted else None for place in range(size * len(keys)))
            for digests in joined
        )

    yield Holding(
        "state",
        tuple(rank.rank for rank in optimizer.ranks),
        [key for key in keys for _ in range(size)],
        [turn * size + place for turn in range(len(keys)) for place in held.parameters],
        held.ground._replace(is_rounded=False),
        [Look(one.number, values(one), one.line, one) for one in found],
        empty=lambda place: nothing_of(first.parameters[place % size]) | {None},
        words={"optimizer": optimizer.kind},
        links=_links(held),
        optimizer=optimizer.number,
    )


def _counters(held: Copies, found: Sequence[Window]) -> Iterator[Holding]:
    """Counts of steps in the groups of parameters: entries that have grown by one with every step on some rank.

    On all other ranks the entry has fallen behind, more and more; other numbers may be of a rank's own work.
    """
    optimizer = held.optimizer
    grown: dict[int, list[dict[str, int]]] = defaultdict(lambda: [{} for _ in optimizer.ranks])
    for holder, (rank, described) in enumerate(zip(optimizer.ranks, optimizer.described, strict=True)):
        for one in rank.of(ev.GroupCounts):
            if one.optimizer == described.optimizer:
                grown[one.number][holder] = one.grown
    windows_by_number = {one.number + 1: one for one in found}
    numbers = [number for number in sorted(grown) if number in windows_by_number]
    for key in dict.fromkeys(key for number in numbers for counts in grown[number] for key in counts):
        counts = [[grown[number][holder].get(key, 0) for number in numbers] for holder in range(len(optimizer.ranks))]
        if numbers in counts and all(its == numbers or _falls_behind(its, numbers) for its in counts):
            looks = [
                Look(number - 1, tuple((its[turn],) for its in counts), windows_by_number[number].line)
                for turn, number in enumerate(numbers)
            ]
            yield Holding(
                "counters",
                tuple(rank.rank for rank in optimizer.ranks),
                [key.partition(" ")[2]],
                [0],
                held.ground._replace(severity="warning", least=2, is_rounded=False),
                looks,
                words={"optimizer": optimizer.kind, "steps": str(numbers[-1])},
                links=(f"counts of optimizer {optimizer.number}",),
                optimizer=optimizer.number,
            )


def _falls_behind(counts: Sequence[int], numbers: Sequence[int]) -> bool:
    missed = [number - count for number, count in zip(numbers, counts, strict=True)]
    return missed == sorted(missed) and missed[-1] > missed[0] >= 0


# --- of the slices of one tensor


def _of_slices(optimizer: Aligned) -> Iterator[Holding]:
    """The rates of groups that hold slices, among the ranks that a tensor is dealt out to."""
    found = windows(optimizer, optimizer.common())
    for holders, places in slices(optimizer).items():
        groups = groups_of(optimizer, places)
        ranks = tuple(optimizer.ranks[holder].rank for holder in holders)
        looks = []
        for one in found:
            rates = one.rates(groups)
            looks.append(Look(one.number, tuple(rates[holder] for holder in holders), _lines(one, holders), one))
        holding = Holding(
            "rates",
            ranks,
            ["learning rate"] * len(groups),
            range(len(groups)),
            SLICES,
            looks,
            empty=lambda _: frozenset({0.0}),
            words={"optimizer": optimizer.kind},
            links=(f"rates of optimizer {optimizer.number}",),
            optimizer=optimizer.number,
        )
        yield holding
        if optimizer.first and all(described.torchs for described in optimizer.described):
            among = sorted(places)
            yield holding._replace(
                moment="state",
                names=["step"] * len(among),
                places=range(len(among)),
                looks=list(_counts_at_start(found, holders, among)),
                empty=lambda _: frozenset(_UNKNOWN),
                cause="alone",
                links=(f"optimizer {optimizer.number}",),
            )


def slices(optimizer: Aligned) -> dict[tuple[int, ...], set[int]]:
    """By the holders that a tensor is dealt out to: the places of such tensors.

    None where ranks step other models by it: they made their optimizers in another order.
    """
    stepped = models_of(optimizer)
    if len({frozenset(numbered(rank).get(one) for one in models) for rank, models in stepped.items()}) > 1:
        return {}
    by_ranks: dict[frozenset[int], set[int]] = defaultdict(set)
    for rank, described in zip(optimizer.ranks, optimizer.described, strict=True):
        for place, parameter in enumerate(described.parameters):
            by_ranks[_among(rank, parameter.layout)].add(place)
    found = {
        tuple(holder for holder, rank in enumerate(optimizer.ranks) if rank.rank in ranks): places
        for ranks, places in by_ranks.items()
    }
    return {holders: places for holders, places in found.items() if len(holders) > 1}


def _counts_at_start(found: Sequence[Window], holders: Sequence[int], among: Sequence[int]) -> Iterator[Look]:
    """How many steps torch's own optimizers count, after the first one, for tensors of which these ranks hold slices.

    A slice without a gradient is not stepped, such as that of experts without tokens.
    """
    for one in found[:1]:
        counts = one.states.get("step")
        if counts is not None and one.number == 0:
            absent = set(one.absent(among))
            values = tuple(
                tuple(None if place in absent else _known(at(counts[holder], place)) for place in among)
                for holder in holders
            )
            yield Look(one.number, values, _lines(one, holders), one)


def _known(digest: bytes) -> bytes | None:
    return None if digest in _UNKNOWN else digest


def _lines(window: Window, holders: Sequence[int]) -> Callable[[int], CallSite | None]:
    return lambda holder: window.line(holders[holder])


def _among(rank: Rank, layout: ev.Layout | None) -> frozenset[int]:
    """The ranks that a tensor is dealt out to."""
    if layout is None or not layout.sharded:
        return frozenset()
    if layout.ground == "FSDP":
        return frozenset(layout.among)
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    return frozenset(mesh.ranks) if mesh is not None and layout.ground == "DTensor" else frozenset()


# --- of the parts of one model


class _Stepped(NamedTuple):
    """The steps of a rank, as far as all of them are on record."""

    rank: Rank
    steps: dict[int, ev.Step]
    """By the backward() calls so far."""
    collectives: dict[int, int]
    """By the same, the collectives so far."""

    @property
    def backwards(self) -> int:
        """The backward() calls that most steps are made after."""
        often = Counter(step.backwards for step in self.steps.values())
        return max(often, key=lambda number: (often[number], number))


def _steps(world: World) -> Iterator[Holding]:
    """After which backward() calls the ranks that hold parts of one model have stepped.

    How often a rank calls backward() before a step may be its own affair: the
    ranks' common clock is their collectives.
    """
    sharded = [(Ground("slices", usual="none"), ranks) for ranks in _by_shards(world)]
    # Activations that are exchanged show that it is one model, and do not declare it.
    for ground, ranks in sharded or [(Ground("exchanged", "warning", usual="none"), _by_what_is_exchanged(world))]:
        stepped = [_stepped(rank, ground.kind == "slices") for rank in ranks]
        # Ranks that split a loss otherwise, and call backward() more often for each step, skip nothing.
        if len(ranks) < 2 or not all(one.steps for one in stepped) or len({one.backwards for one in stepped}) > 1:
            continue
        if len({len({step.optimizer for step in rank.of(ev.Step)}) for rank in ranks}) > 1:
            continue  # a rank that steps something else beside it counts other calls
        common = set(stepped[0].steps).intersection(*(one.steps for one in stepped))
        if any(len({one.collectives[number] for one in stepped}) > 1 for number in common):
            continue
        last = min(max(one.steps) for one in stepped)
        looks = []
        for number in sorted({number for one in stepped for number in one.steps if number <= last}):
            made = [number in one.steps for one in stepped]
            # Ranks that accumulate other numbers of micro-batches step after the same collectives all the same.
            left_out = any(
                one.collectives[number] not in other.collectives.values()
                for one in stepped if number in one.steps
                for other in stepped
            )  # fmt: skip
            if all(made) or left_out:
                first = next(one.steps[number] for one in stepped if number in one.steps)
                values = tuple((f"a step after {number} backward() calls" if one else "none",) for one in made)
                looks.append(Look(first.number, values, _line_of(stepped, number)))
        scaled = any(step.scale is not None for one in stepped for step in one.steps.values())
        yield Holding(
            "steps", tuple(rank.rank for rank in ranks), ["the steps of one model's parts"], [0], ground, looks,
            cause="scaled" if scaled else "alone", links=("skipped steps",),
        )  # fmt: skip


def _line_of(stepped: Sequence[_Stepped], number: int) -> Callable[[int], CallSite | None]:
    made = next(one for one in stepped if number in one.steps)
    return lambda _: made.rank.where(made.steps[number].site)


def _by_shards(world: World) -> list[list[Rank]]:
    """The ranks among which a wrapper or a mesh has dealt out what they step, model by model."""
    groups: dict[frozenset[int], list[Rank]] = defaultdict(list)
    for rank in world:
        layouts = [p.layout for one in rank.of(ev.Optimizer) for p in one.parameters]
        groups[frozenset[int]().union(*(_among(rank, layout) for layout in layouts))].append(rank)
    return [ranks for among, ranks in groups.items() if among and among == {rank.rank for rank in ranks}]


def _by_what_is_exchanged(world: World) -> list[Rank]:
    """All ranks, if they exchange something else than parameters and gradients at every step: activations."""
    names = {tuple(p.name for one in rank.of(ev.Optimizer)[:1] for p in one.parameters) for rank in world}
    if len(names) > 1 or _hold_anything_alike(world):
        return []
    for rank in world:
        steps = rank.of(ev.Step)
        if not steps or any(step.collectives < step.backwards or not step.backwards for step in steps):
            return []
        # What has the size of all parameters by chance is no sign of them.
        carried = any(not carried.flat for one in rank.of(ev.Exchanged) for carried in one.carried)
        # Parts of a layer are added up; models that learn from each other's answers gather them.
        reduced = any("reduce" in call.op for call in rank.of(ev.Call))
        if carried or not reduced or not any(one.others for one in rank.of(ev.Transfers)) or rank.of(ev.Wrapped):
            return []
    return list(world)


def _hold_anything_alike(world: World) -> bool:
    """Whether any parameter was the same on several ranks after a step: these may be copies."""
    by_rank = [{one.number: one.parameters for one in rank.of(ev.Step) if one.parameters} for rank in world]
    for number in set(by_rank[0]).intersection(*by_rank[1:]) if by_rank else ():
        for place in range(min(len(one[number]) for one in by_rank) // ev.WIDTH):
            seen = [at(one[number], place) for one in by_rank]
            if len({*seen, ev.ABSENT, ev.UNSEEN}) < len(seen) + 2:
                return True
    return False


def _stepped(rank: Rank, of_shards: bool) -> _Stepped:
    """The steps of optimizers that hold shards, or of all."""
    found = _Stepped(rank, {}, {})
    backwards = collectives = 0
    following: dict[int, int] = {}
    sharded = {
        one.optimizer
        for one in rank.of(ev.Optimizer)
        if any(p.layout is not None and p.layout.sharded for p in one.parameters)
    }
    for step in rank.of(ev.Step):
        if step.number != following.get(step.optimizer, 0) or step.region:
            break
        following[step.optimizer] = step.number + 1
        backwards += step.backwards
        collectives += step.collectives
        if not of_shards or step.optimizer in sharded:
            found.steps.setdefault(backwards, step)
            found.collectives.setdefault(backwards, collectives)
    return found


def _scales_of_stages(world: World) -> Iterator[Holding]:
    """The scales of ranks that send each other tensors, of which one has no loss of its own.

    Its gradients come with the factor of the rank that has the loss, and are
    divided by its own scaler's.
    """
    scales = {rank.rank: steps for rank in world if (steps := _scales(rank))}
    for one, other in stages.pairs(world):
        if one.rank in scales and other.rank in scales:
            mine, theirs = scales[one.rank], scales[other.rank]
            yield Holding(
                "scale",
                (one.rank, other.rank),
                ["gradient scale"],
                [0],
                # One step may lie between the news of an overflow and what is made of it.
                Ground("stages", "warning", "stages that send each other gradients", usual="none", least=2),
                [
                    Look(number, ((mine[number].scale,), (theirs[number].scale,)), _line_at(one, mine[number]))
                    for number in sorted(mine.keys() & theirs.keys())
                ],
                links=("skipped steps",),
            )


def _line_at(rank: Rank, step: ev.Step) -> Callable[[int], CallSite | None]:
    return lambda _: rank.where(step.site)


def _scales(rank: Rank) -> dict[int, ev.Step]:
    """By number, the steps of its only optimizer that a scaler has made."""
    if len({step.optimizer for step in rank.of(ev.Step)}) > 1:
        return {}
    return {step.number: step for step in rank.of(ev.Step) if step.scale is not None and step.scale != ev.UNREAD}
