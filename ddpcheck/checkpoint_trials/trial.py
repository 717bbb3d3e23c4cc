"""One trial of a pair of save and load: the way from a new training to the last planted kill, phase by phase."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck.checkpoint_trials import folder_snapshots, forked_copies, planted_kills, saves_in_parts
from ddpcheck.checkpoint_trials.trainings import Trainings, Wrap, idle, modules_only, moved, own_devices
from ddpcheck.checkpoint_trials.user_calls import Failed, told
from ddpcheck.evidence.planted_kills import Kill, Killed
from ddpcheck.evidence.recorded_save import ASK_ALONE, Alone, Recorded
from ddpcheck.evidence.training_state import Holdings, Loaded, Resumed
from ddpcheck.probes.files.recorded_section import Section
from ddpcheck.probes.randomness import random_states
from ddpcheck.probes.training_state import held_values
from ddpcheck.ranks.current_rank import CurrentRank
from ddpcheck.ranks.judged_assertion import assert_judged

NAME = "checkpoint.pt"


class Trial:
    """Each phase ends in a verdict that all ranks share; one that is violated ends the trial."""

    def __init__(
        self,
        title: str,
        rank: CurrentRank,
        folder: Path,
        build: Callable[[Wrap], Any],
        step: Callable[[Any], object],
        save: Callable[[Any, Path], object],
        load: Callable[[Any, Path], Any],
    ) -> None:
        self.title, self.rank, self.folder = title, rank, folder
        self.trainings = Trainings(rank, build, step, save, load)
        self._random = random_states.put_back()
        self.section = self.trainings.section = Section(rank._evidence_dir)
        self.path = self._place("saved")

    def __enter__(self) -> Trial:
        self._random.__enter__()
        self.section.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.section.end()
        self._random.__exit__(None, None, None)

    def _place(self, name: str) -> Path:
        """The path of a checkpoint, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder / NAME

    # --- save

    def begin(self, steps: int) -> None:
        """Train, save on record, and judge who has written."""
        __tracebackhide__ = True
        failed = None
        self.saved: Holdings = {}
        try:
            self.training = self.trainings.new()
            self.trainings.steps(self.training, steps)
            with self.section.heard():
                self.trainings.save(self.training, self.path)
            self.saved = held_values.values(self.training)
        except Failed as error:
            failed = error
        folder = self.path.parent
        self.there = tuple(folder_snapshots.names(folder))
        facts = Recorded(evidence=self.section.so_far(), failure=told(failed), folder=str(folder), there=self.there)
        self._judge("checkpoint-single-writer", facts, failed, {ASK_ALONE: lambda _: self._alone()})

    def _alone(self) -> Alone:
        """What this rank writes out of sight: a copy of it saves alone, into a folder of its own."""
        path = self._place(f"alone-{self.rank.rank}")
        why_not = forked_copies.why_not()
        if why_not:
            return Alone(why_not=why_not)
        names, why_not = planted_kills.hidden_by(lambda: self.trainings.save(self.training, path), path.parent)
        return Alone(names=tuple(names), why_not=why_not)

    # --- go on, and resume

    def go_on(self, steps: int) -> None:
        """Train on as if nothing had been saved."""
        self.went_on: Holdings = {}
        self.batches: list[str] = []
        self.failed: Failed | None = None
        self.went_on_in_order = True
        try:
            self.batches = self.trainings.steps(self.training, steps)
            self.went_on = held_values.values(self.training)
            self.went_on_in_order = self.trainings.in_order
        except Failed as error:
            self.failed = error

    def resume(self) -> None:
        """Build anew, load on record, and judge when that was read, where it went, and whether it was all."""
        __tracebackhide__ = True
        failed = self.failed
        before: Holdings = {}
        self.loaded: Holdings = {}
        if failed is None:
            try:
                other = self.trainings.new()
                before = held_values.values(other)
                with self.section.heard():
                    self.other = self.trainings.load(other, self.path)
                self.loaded = held_values.values(self.other)
            except Failed as error:
                failed = error
        recorded = Recorded(
            evidence=self.section.so_far(),
            failure=told(failed),
            folder=str(self.path.parent),
            there=self.there,
            own=own_devices(before) or (str(self.rank.device),),
            moved=moved(before, self.loaded),
        )
        self._judge("checkpoint-read-after-write", recorded, failed)
        self._judge("checkpoint-map-location", recorded)
        self._judge("checkpoint-load-complete", Loaded(saved=self.saved, before=before, after=self.loaded))

    def compare(self, steps: int, ignore: Collection[str]) -> None:
        """Train on from what was loaded, and hold it against the training that never stopped."""
        __tracebackhide__ = True
        failed = None
        resumed: Holdings = {}
        batches: list[str] = []
        try:
            batches = self.trainings.steps(self.other, steps)
            resumed = held_values.values(self.other)
        except Failed as error:
            failed = error
        if failed is None:
            _refuse_unknown(ignore, {**self.went_on, **resumed})
        facts = Resumed(
            steps=steps,
            saved=self.saved,
            loaded=self.loaded,
            went_on=self.went_on,
            resumed=resumed,
            batches_went_on=tuple(self.batches),
            batches_resumed=tuple(batches),
            idle=idle(self.saved, self.went_on),
            ignored=frozenset(ignore),
            in_order=self.went_on_in_order or self.trainings.in_order,
            failure=told(failed),
        )
        self._judge("resume-equivalence", facts, failed)

    # --- into bare modules, and from them

    def cross(self) -> None:
        """Load what DDP has saved into bare modules, and what these save into DDP."""
        __tracebackhide__ = True
        bare = self._into(self.path, self.trainings.bare, self.saved, "saved in DDP, loaded into bare modules")
        path = self._place("bare")
        failed = None
        saved: Holdings = {}
        try:
            self.trainings.save(bare, path)
            saved = held_values.values(bare)
        except Failed as error:
            failed = error
        self._judge("checkpoint-load-complete", Loaded(failure=told(failed)), failed)
        self._into(path, self.trainings.new, saved, "saved as bare modules, loaded into DDP")

    def _into(self, path: Path, build: Callable[[], Any], saved: Holdings, how: str) -> Any:
        __tracebackhide__ = True
        failed = None
        training = None
        before: Holdings = {}
        after: Holdings = {}
        try:
            training = build()
            before = held_values.values(training)
            training = self.trainings.load(training, path)
            after = held_values.values(training)
        except Failed as error:
            failed = error
        facts = Loaded(saved=modules_only(saved), before=before, after=after, failure=told(failed), how=how)
        self._judge("checkpoint-load-complete", facts, failed)
        return training

    # --- kills

    def kill(self, wanted: int) -> None:
        """Kill copies of this rank in the midst of saving, and load what they leave."""
        __tracebackhide__ = True
        failed = None
        tried: list[Kill] = []
        unstopped: list[str] = []
        target: Any = None
        why_not = forked_copies.why_not()
        if not why_not:
            try:
                self.trainings.steps(self.training, 1)  # so that old and new can be told apart
                target = self.trainings.new()
                # In a copy that makes the others: what they all need is done there once.
                ending = forked_copies.in_copy(lambda: msgspec.to_builtins(self._kills(target, wanted)), patience=None)
                said = ending.said or [[], ending.why, []]
                tried, why_not, unstopped = msgspec.convert(said, tuple[list[Kill], str, list[str]])
            except Failed as error:
                failed = error
        facts = Killed(kills=tuple(tried), not_tried=why_not, unstopped=tuple(unstopped), failure=told(failed))
        self._judge("checkpoint-atomic-save", facts, failed)
        stages = saves_in_parts.stages(self.path.parent, self.folder, self.rank.world_size)
        if stages:  # on all ranks or on none: they look at one folder, and all have written what they have to write
            self._judge("checkpoint-atomic-save", self._partly(target, stages, why_not))

    def _partly(self, target: Any, stages: list[saves_in_parts.Stage], why_not: str) -> Killed:
        """What this rank finds where some of several ranks that write have not come as far as the others."""
        place = self._place(f"killed-{self.rank.rank}")
        load = self._loading(target, place)
        if why_not:
            return Killed(not_tried=why_not)
        ending = forked_copies.in_copy(
            lambda: msgspec.to_builtins(saves_in_parts.tried(stages, self.path.parent, place.parent, load)),
            patience=None,
        )
        together = msgspec.convert(ending.said or [], tuple[Kill, ...])
        return Killed(together=together, not_tried="" if together else ending.why)

    def _loading(self, target: Any, path: Path) -> Callable[[], dict[str, str]]:
        """What loads a checkpoint in a copy, and tells all that it has come to."""

        def load() -> dict[str, str]:
            loaded = held_values.values(self.trainings.load(target, path))
            return {name: f"{value.form} {value.digest} {value.shown}" for name, value in loaded.items()}

        return load

    def _kills(self, target: Any, wanted: int) -> tuple[list[Kill], str, list[str]]:
        before = self.path.parent
        path = self._place(f"killed-{self.rank.rank}")

        def save(at: Path = path) -> None:
            self.trainings.save(self.training, at)

        load = self._loading(target, path)
        folder_snapshots.restore(path.parent, before)
        old, again = forked_copies.in_copy(load), forked_copies.in_copy(load)
        events, error = planted_kills.events_of(
            save, lambda: saves_in_parts.keep(path.parent, self.folder, self.rank.rank)
        )
        unseen = planted_kills.unseen(path.parent, before, events)
        if not events and not unseen:
            return [], error, []
        new = forked_copies.in_copy(load)
        for one, which in ((old, "the checkpoint before"), (again, "it once more"), (new, "the new checkpoint")):
            if one.said is None:
                return [], f"a copy of the rank cannot load {which}: {one.why}", []
        # What is another each time that one checkpoint is loaded (a clock, say) tells nothing.
        changing = {name for name, value in old.said.items() if again.said.get(name) != value}
        states = [{n: v for n, v in one.said.items() if n not in changing} for one in (old, new)]
        tried = []
        stopped: dict[str, bool] = {}
        for moment in planted_kills.moments(events, unseen, wanted):
            ending = planted_kills.plant(save, path, before, moment)
            killed = planted_kills.was_killed(ending)
            if moment.file:
                stopped[moment.file] = stopped.get(moment.file, False) or killed or bool(ending.error)
            # At a byte another process may have been killed instead, which has written for this one.
            if killed or moment.file:
                left = forked_copies.in_copy(load)
                found = {n: v for n, v in (left.said or {}).items() if n not in changing}
                tried.append(
                    planted_kills.verdict(moment.words, found, "" if left.said is not None else left.why, *states)
                )
        return tried, "", [file for file, one in stopped.items() if not one]

    # --- the end of a phase

    def _judge(
        self,
        check: str,
        facts: Any,
        failed: Failed | None = None,
        answers: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        __tracebackhide__ = True
        assert_judged(check, self.title, facts, answers, stuck=failed is not None)


def _refuse_unknown(ignore: Collection[str], held: Holdings) -> None:
    """Raise where a name that is to be ignored is none: a slip of the pen would look like a difference."""
    for name in ignore:
        if not any(one == name or one.startswith(f"{name}.") for one in held):
            close = difflib.get_close_matches(name, held, n=1, cutoff=0.3)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"ignore has {name!r}, and the training holds nothing of that name{hint}")
