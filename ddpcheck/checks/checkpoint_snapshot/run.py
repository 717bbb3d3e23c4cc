"""Is what a save writes the state at its call, and does saving change nothing? Judge of checkpoint-snapshot."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_snapshot import faked_steps, mistaken_names
from ddpcheck.facts.states import State, every_save, seen_in_part
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

_POOLS = ("ThreadPoolExecutor", "asyncio_", "AsyncCheckpoint", "QueueFeeder")
"""Threads that are given one task after the other: when one began says nothing of this save."""


def judge(world: World) -> Judged:
    """What was given to each save, against what it held when it was written."""
    checked = 0
    groups: dict[str, list[tuple[State, ev.Step | None, list[str]]]] = defaultdict(list)
    for state in every_save(world):
        assert isinstance(state.record, ev.StateSaved)
        written = [one for one in state.rank.of(ev.StateWritten) if one.save == state.record.save]
        checked += bool(written) and state.all_seen
        changed = [place for one in written for place in one.changed]
        names = [state.form.entries[place].name for place in dict.fromkeys(changed)]
        during = (one for one in state.rank.of(ev.Step) if written and state.record.n < one.n < written[-1].n)
        step = next(during, None)
        if not names and written:
            step, names = _since_its_thread(state, written[-1].n)
        if names and (step is not None or changed):
            groups[str(state.where)].append((state, step, names))
    findings = [_finding(each) for each in groups.values()]
    for one in (faked_steps.judge, mistaken_names.judge):
        findings += one(world)
    because = seen_in_part(world) or "ddpcheck saw no save whose elements it could read again when it had ended"
    made = len(every_save(world))
    return Judged(checked=checked, of=made, findings=tuple(findings), skipped_because="" if checked else because)


def _since_its_thread(state: State, end: int) -> tuple[ev.Step | None, list[str]]:
    """Of a thread that was started for this save: the step since, and what of it is being trained itself."""
    record = state.record
    assert isinstance(record, ev.StateSaved)
    live = [one for one in state.form.entries if one.live and one.role in ("parameter", "moment")]
    if not record.thread or record.thread.startswith(_POOLS) or not live:
        return None, []
    began = [one.n for one in state.rank.of(ev.Started) if one.name == record.thread and one.n < record.n]
    others = [one for one in state.rank.of(ev.StateSaved) if one.thread == record.thread and one.n != record.n]
    if not began or any(began[-1] < one.n for one in others):
        return None, []
    if not any(one.n < began[-1] for one in state.rank.of(ev.Step)):
        return None, []  # a thread from before the training waits for whatever it will be given
    held = {p.path or p.name for one in state.rank.of(ev.Optimizer) for p in one.parameters}
    names = [one.name for one in live if one.of in held]
    step = next((one for one in state.rank.of(ev.Step) if began[-1] < one.n < end), None)
    return step, names


def _finding(each: list[tuple[State, ev.Step | None, list[str]]]) -> Finding:
    state, step, names = each[0]
    record = state.record
    assert isinstance(record, ev.StateSaved)
    how = f"{record.how} in a thread" if record.thread else record.how
    between = f"step {step.number} of the optimizer has changed" if step is not None else "something has changed"
    return Finding(
        rule="change-during-save",
        severity="error" if step is not None else "warning",
        ranks=tuple(sorted({one.rank.rank for one, _, _ in each})),
        subject=names[0],
        step=step.number if step is not None else None,
        expected="a save to write the state of the moment when it was called",
        found=f"{how} writing {count(len(names), 'tensor')} that {between} in the meantime: {listing(names)}",
        cause="the training's own tensors are written in the background, and not a copy",
        advice="Copy the tensors before the training goes on (tensor.detach().clone(), or to the CPU), and write the "
        "copy; or wait for the save before the next step.",
        where=state.where,
        count=len(each),
        links=("saved state",),
        proof=state.rank.proof(step.site) if step is not None else (),
    )
