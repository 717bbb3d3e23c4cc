"""Kills in great number: what every way of saving leaves, and whether the verdict on it is the truth.

    python tests/checkpoints/many_kills.py [--kills 240] [--out FILE.json]

Each saver of savers.py saves over a good checkpoint, again and again, and is
killed each time at another moment. What is left is judged as the assertion
does it, and beside that by other means: by the tensors of the old state and
the new one, element by element. A verdict of "old" or "new" on anything else
would be a lost checkpoint that passes as good.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for a run as a script

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ddpcheck.checkpoint_trials import folder_snapshots, planted_kills
from ddpcheck.checkpoint_trials.collectives_alone import be_alone
from ddpcheck.checkpoint_trials.forked_copies import in_copy
from ddpcheck.probes.training_state import held_values
from tests.checkpoints.savers import NAME, SAVERS, Saver, Training, build, load, state_of, step

SEEDS = 3
"""How often each saver is tried, each time from another state."""


class Tried(NamedTuple):
    """One saver's kills."""

    moments: int
    left: Counter[str]
    """What the verdicts said: old, new, other, raised."""
    wrong: list[str]
    """Moments at which the truth is another."""


def plain(training: Training) -> dict[str, Any]:
    """A state, element by element."""
    state = state_of(training)
    momenta = {k: v["momentum_buffer"].tolist() for k, v in state["optimizer"]["state"].items() if v}
    model = {k: v.tolist() for k, v in state["model"].items()}
    return {"model": model, "momenta": {str(k): v for k, v in momenta.items()}}


def fresh(seed: int) -> Training:
    torch.manual_seed(seed)
    return build(lambda module: module)


def tried(saver: Saver, wanted: int, folder: Path, seed: int, told: Any) -> Tried:
    """Kill this saver at every moment, and hold each verdict against the truth."""
    training, target = fresh(seed), fresh(seed + 1000)
    before, path = folder / "before" / NAME, folder / "tried" / NAME
    before.parent.mkdir(parents=True)
    step(training)
    saver.save(training, before)
    old_state = plain(training)
    step(training)
    new_state = plain(training)

    def judged() -> dict[str, str]:
        load(target, path)
        return {n: f"{v.digest} {v.shown}" for n, v in held_values.values(target).items() if v.kind != "random"}

    def true() -> dict[str, Any]:
        load(target, path)
        return plain(target)

    def save() -> None:
        saver.save(training, path)

    folder_snapshots.restore(path.parent, before.parent)
    old = in_copy(judged).said
    events, error = planted_kills.events_of(save)
    assert not error, error
    unseen = planted_kills.unseen(path.parent, before.parent, events)
    new = in_copy(judged).said
    left: Counter[str] = Counter()
    wrong = []
    moments = planted_kills.moments(events, unseen, wanted)
    for moment in moments:
        ending = planted_kills.plant(lambda to: saver.save(training, to), path, before.parent, moment)
        assert planted_kills.was_killed(ending), moment
        found, truth = in_copy(judged), in_copy(true)
        error = "" if found.said is not None else found.error or f"signal {found.signal}"
        kill = planted_kills.verdict(moment.words, found.said, error, old, new)
        left[kill.left] += 1
        whole = "old" if truth.said == old_state else "new" if truth.said == new_state else "lost"
        if (kill.left if kill.left in ("old", "new") else "lost") != whole:
            wrong.append(f"{moment.words}: said {kill.left}, and it is {whole}")
        told()
    return Tried(len(moments), left, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill every way of saving at many moments.")
    parser.add_argument("--kills", type=int, default=240, help="for each way of saving (default: 240)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    console = Console()
    begun = time.monotonic()
    results: dict[str, Tried] = {}
    share = -(-options.kills // SEEDS)
    with tempfile.TemporaryDirectory() as temporary, Progress(console=console) as progress:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        be_alone()  # here once, instead of in every copy
        bar = progress.add_task("kills", total=len(SAVERS) * share * SEEDS)
        for number, (name, saver) in enumerate(SAVERS.items()):
            parts = [
                tried(saver, share, Path(temporary) / f"{number}-{seed}", seed, lambda: progress.advance(bar))
                for seed in range(SEEDS)
            ]
            left: Counter[str] = Counter()
            for part in parts:
                left.update(part.left)
            results[name] = Tried(sum(p.moments for p in parts), left, [w for p in parts for w in p.wrong])
    _print(console, results, time.monotonic() - begun)
    if options.out is not None:
        figures = {name: {**result._asdict(), "left": dict(result.left)} for name, result in results.items()}
        options.out.write_text(json.dumps(figures, indent=2))
    failed = [n for n, r in results.items() if r.wrong or (_lost(r) > 0) is SAVERS[n].safe]
    return 1 if failed else 0


def _lost(result: Tried) -> int:
    return result.left["other"] + result.left["raised"]


def _print(console: Console, results: dict[str, Tried], seconds: float) -> None:
    table = Table(title="Kills planted in a save, and what a load then finds")
    for column in ("way of saving", "kills", "old", "new", "lost", "misjudged"):
        table.add_column(column, justify="left" if column == "way of saving" else "right")
    for name, result in results.items():
        shown = (result.moments, result.left["old"], result.left["new"], _lost(result), len(result.wrong))
        table.add_row(name + ("" if SAVERS[name].safe else " (faulty)"), *map(str, shown))
    console.print(table)
    for name, result in results.items():
        for words in result.wrong:
            console.print(f"{name}: {words}")
    total = sum(r.moments for r in results.values())
    console.print(f"{total} kills, {sum(len(r.wrong) for r in results.values())} of them misjudged, in {seconds:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
