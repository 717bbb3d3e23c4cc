"""What to do where ranks have unequal numbers of batches: it depends on what deals them out."""

from __future__ import annotations

from collections.abc import Mapping

from ddpcheck import evidence as ev
from ddpcheck.judging.control_flow import flow_of
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite

JOIN = "or train within `with model.join():`."
EVEN_OUT = (
    "give the loader a DistributedSampler, which pads the ranks' shards to one length (or cuts them, with its "
    f"drop_last=True), {JOIN}"
)
TOGETHER = (
    f"let the ranks agree on the number of batches before the pass (all-reduce it with MIN, and stop there), {JOIN}"
)
AFTERWARDS = (
    "call no collective for each batch of an evaluation: add up on each rank, and all-reduce once after the loop."
)


def fix(loaders: Mapping[int, ev.Loader | None], trains: bool = True) -> str:
    """The fix that fits these loaders of the ranks, as a clause with its full stop."""
    if not trains:
        return AFTERWARDS
    known = [one for one in loaders.values() if one is not None]
    if not known or len(known) < len(loaders):
        return EVEN_OUT
    one = known[0]
    if one.stream:
        return TOGETHER
    if len({other.batch_size for other in known}) > 1 or len({other.drop_last for other in known}) > 1:
        return "give the loader the same batch_size and drop_last on every rank."
    if len({other.size for other in known}) > 1:
        if one.distributed:
            return f"give every rank the same dataset, which {decides(one)} shares out, {JOIN}"
        return f"cut or pad the ranks' data to one length before the loader is made, {JOIN}"
    if one.order:
        return _of_own(one)
    return TOGETHER if one.distributed or one.batch_sampler else EVEN_OUT


def _of_own(one: ev.Loader) -> str:
    name = decides(one)
    if not one.batch_sampler:
        return (
            f"let {name} give every rank as many samples: pad its list of all samples (repeat some), or cut it, to a "
            f"multiple of the number of ranks before it is divided among them, {JOIN}"
        )
    if batches_of_a_share(one):
        return (
            f"let {name} make the batches of all samples, alike on every rank, and deal as many of them to each rank, "
            f"or agree on the number of batches (all-reduce it with MIN or MAX, then cut or repeat some), {JOIN}"
        )
    return (
        f"let {name} give every rank as many batches: repeat some of its list of batches, or drop some, so that their "
        f"number is a multiple of the number of ranks before they are dealt out, {JOIN}"
    )


def decides(one: ev.Loader) -> str:
    """The class that deals out the batches, or else the samples."""
    return one.batch_sampler or one.sampler


def batches_of_a_share(one: ev.Loader) -> bool:
    """Whether a batch sampler packs what a sampler of the rank has given it."""
    return bool(one.batch_sampler) and one.batch_sampler != one.sampler and one.distributed


def place(rank: Rank, one: ev.Loader | None) -> CallSite | None:
    """The line of the user's class where the list is divided among the ranks, or else is handed out."""
    sites = [site for number in (one.order if one is not None else ()) for site in rank.process.calls_to(number)]
    flows = [(site, flow_of(rank.process.body(site), site.first, site.function)) for site in sites]
    for site, flow in flows:
        if flow is not None and (lines := flow.shares()):
            return CallSite(file=site.file, line=lines[-1], function=site.function)
    for site, flow in flows[:1]:
        if flow is not None and (last := flow.last_return()) is not None:
            return CallSite(file=site.file, line=last, function=site.function)
    return rank.where(sites[0].id) if sites else None
