"""Does what a test loads land on the devices of its rank?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpcheck.checks.checkpoint_map_location import run
from ddpcheck.checks.checkpoint_map_location.run import landed_elsewhere
from ddpcheck.evidence.recorded_save import Recorded
from ddpcheck.judging.file_history import LOADS, Files
from ddpcheck.judging.recorded_section import Recordings
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """Loads that have put tensors elsewhere, and what they have moved; else those that are right by luck."""
    recorded = Recordings(facts)
    if recorded.raised:
        return recorded.raised
    risky = [finding for finding in run.judge(recorded.files.world).findings if finding.severity == "warning"]
    return tuple([*_elsewhere(recorded.files, recorded.said), *_moved(recorded.said)] or risky)


def _elsewhere(files: Files, said: Sequence[Recorded | None]) -> list[Finding]:
    """Loads that have put tensors on a GPU which is not this rank's."""
    wrong = []
    for reads in files.reads.values():
        for touch in reads:
            own = said[touch.number]
            assert own is not None
            strange = [d for d in touch.record.devices if d.startswith("cuda") and d not in own.own]
            if touch.record.how in LOADS and strange:
                wrong.append((touch, own.own))
    if not wrong:
        return []
    wrong.sort(key=lambda one: (one[0].number, one[0].start))
    return [landed_elsewhere([touch for touch, _ in wrong], listing(wrong[0][1]))]


def _moved(said: Sequence[Recorded | None]) -> list[Finding]:
    """Tensors of the training that the load has put elsewhere."""
    ranks = {rank: one.moved for rank, one in enumerate(said) if one is not None and one.moved}
    if not ranks:
        return []
    first = min(ranks)
    name, (before, after) = next(iter(ranks[first].items()))
    return [
        Finding(
            rule="tensors-moved-by-load",
            ranks=tuple(sorted(ranks)),
            subject=name,
            expected=f"every tensor to be on its rank's own device after the load: {name} on {before}",
            found=f"{name} on {after} on rank {first}; {count(sum(map(len, ranks.values())), 'such tensor')} in all, "
            f"on {ranks_text(ranks)}",
            cause="the load has put other tensors in the place of the training's own",
            advice="Load with map_location set to the device of this rank, and into the tensors that are there.",
        )
    ]
