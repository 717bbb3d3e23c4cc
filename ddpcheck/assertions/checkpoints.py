"""Checkpoints, held in a ``ddp`` test: the invariants one by one, and all of them for a pair of save and load.

As all assertions these are collective: every rank calls them, and every rank
gets the same verdict. They call the user's functions as a training does, on
every rank, and take what these raise for a fact to be judged: a load that
fails on one rank alone ends the test at once, however the others wait for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpcheck.ranks.current_rank import CurrentRank, current
from ddpcheck.ranks.judged_assertion import assert_judged

if TYPE_CHECKING:
    import torch

Build = Callable[[Callable[["torch.nn.Module"], "torch.nn.Module"]], Any]

KILLS = 24
"""Planted kills for each rank that writes, where the caller does not say."""

_folders = itertools.count(1)


# --- one by one


def assert_single_writer(save: Callable[[], object]) -> None:
    """Fail unless one rank alone writes each file that ``save`` writes (`checkpoint-single-writer`).

    ``save()`` is called once on every rank, as a training calls it. All ranks
    writing one path is a violation also where the file happens to be whole
    afterwards. Writes out of the interpreter's sight (a library in C, a memory
    map) are missed here, and found by `assert_checkpoint_resumable`; a save
    that is not seen writing anything is a warning.
    """
    __tracebackhide__ = True
    _record("assert_single_writer", save=save)


def assert_read_after_write(save: Callable[[], object], load: Callable[[], object]) -> None:
    """Fail unless ``save`` is complete before any rank's ``load`` begins (`checkpoint-read-after-write`).

    Both are called on every rank, one after the other. It is judged by what
    orders the ranks (collectives, point to point, the store, joined threads,
    waiting for a file), and not by the clock: a missing barrier is found also
    in a run where the race goes well.
    """
    __tracebackhide__ = True
    _record("assert_read_after_write", save=save, load=load)


def assert_map_location(load: Callable[[], object], training: Any) -> None:
    """Fail unless ``load`` leaves every tensor on the rank's own devices (`checkpoint-map-location`).

    ``training`` is anything that holds modules and optimizers: what they are
    on before the load is where they, and all that is loaded, belong (or on the
    CPU). On the CPU, a load without ``map_location`` of what another rank has
    saved is a warning.
    """
    __tracebackhide__ = True
    _record("assert_map_location", load=load, training=training)


def assert_load_complete(load: Callable[[], object], training: Any) -> None:
    """Fail unless ``load`` writes all of every parameter and saved buffer of ``training`` (`checkpoint-load-complete`).

    ``training`` is a module, or anything that holds modules. Its parameters
    and buffers are overwritten before; ``load()`` is called twice, over two
    different values, and whatever differs between the two was left out. A
    checkpoint that cannot be loaded (cut off, empty, of another model …) fails
    with the file and the first key that differs.
    """
    __tracebackhide__ = True
    from ddpcheck.checkpoint_trials import unloaded_state
    from ddpcheck.checkpoint_trials.user_calls import Failed, attempt, told
    from ddpcheck.evidence.training_state import Loaded
    from ddpcheck.probes.training_state import held_values

    title = "assert_load_complete"
    rank = current(f"ddpcheck.{title}")
    _needs_modules(title, training)
    section = _section(rank)
    after, failed = [], None
    first, second = unloaded_state.MARKS
    refused = unloaded_state.mark(training, first)
    places = unloaded_state.places(training)
    try:
        with section.heard():
            attempt("load", load, section.so_far)
        after.append(unloaded_state.held(training))
        # What the load has put in the place of a tensor is its own, and not to be overwritten.
        own = {name for name, place in unloaded_state.places(training).items() if place != places.get(name)}
        unloaded_state.mark(training, second, but=own)
        with section.heard():
            attempt("load", load, section.so_far)
        after.append(unloaded_state.held(training))
    except Failed as error:
        failed = error
    section.end()
    facts = Loaded(
        after=held_values.values(training),
        left=unloaded_state.left(*after) if failed is None else {},
        not_looked_at=tuple(refused),
        failure=told(failed),
    )
    assert_judged("checkpoint-load-complete", title, facts, stuck=failed is not None)


# --- a pair of save and load, with the training around it


def assert_atomic_save(
    save: Callable[[Any, Path], object],
    load: Callable[[Any, Path], Any],
    *,
    build: Build,
    step: Callable[[Any], object],
    kills: int = KILLS,
) -> None:
    """Fail if a kill at any moment of a save loses the checkpoint before it (`checkpoint-atomic-save`).

    The arguments are those of `assert_checkpoint_resumable`. Each rank that
    writes is copied (forked) ``kills`` times or more; each copy saves over a
    good checkpoint and is killed: before everything that it does to a file,
    at bytes spread over every file that it writes, and when ``save`` returns.
    What is left is loaded in a further copy, and has to be the old state or
    the new one, whole. In a copy collectives return at once. CUDA does not
    work in one: there a warning says that no kill was planted.
    """
    __tracebackhide__ = True
    with _trial("assert_atomic_save", save, load, build, step) as trial:
        trial.begin(1)
        trial.kill(kills)


def assert_resume_equivalent(
    save: Callable[[Any, Path], object],
    load: Callable[[Any, Path], Any],
    *,
    build: Build,
    step: Callable[[Any], object],
    before: int = 3,
    after: int = 3,
    ignore: Collection[str] = (),
) -> None:
    """Fail unless save, rebuild, load and go on equals never having stopped, to the bit (`resume-equivalence`).

    The arguments are those of `assert_checkpoint_resumable`.
    """
    __tracebackhide__ = True
    with _trial("assert_resume_equivalent", save, load, build, step) as trial:
        trial.begin(before)
        trial.go_on(after)
        trial.resume()
        trial.compare(after, ignore)


def assert_checkpoint_resumable(
    save: Callable[[Any, Path], object],
    load: Callable[[Any, Path], Any],
    *,
    build: Build,
    step: Callable[[Any], object],
    before: int = 3,
    after: int = 3,
    kills: int = KILLS,
    bare: bool = True,
    ignore: Collection[str] = (),
) -> None:
    """Fail unless what ``save`` writes is a checkpoint that training can go on from, as if it had never stopped.

    ``build(wrap)`` makes the training anew: anything (an object, a dict, a
    tuple …) that holds its modules, put through ``wrap`` to get into
    DistributedDataParallel on this rank's device, its optimizers, schedulers,
    scalers, samplers, generators and counters. ``step(training)`` is one step
    of it. ``save(training, path)`` and ``load(training, path)`` are the
    functions in question, called on every rank as a training calls them;
    ``path`` is a file's name in a folder of its own. ``load`` may return
    another training to go on with: one that it has built, loaded and wrapped.

    It holds, in this order, and each under its own name:

    - one rank writes each file (`checkpoint-single-writer`);
    - the save is complete before any rank loads (`checkpoint-read-after-write`);
    - every tensor ends on its rank's own device (`checkpoint-map-location`);
    - no parameter or buffer is left out, from DDP into DDP and, with ``bare``,
      from DDP into bare modules and the other way round (`checkpoint-load-complete`);
    - after ``before`` steps, a save, a rebuild and a load, ``after`` more steps
      equal those of the training that went on: parameters, buffers, optimizer
      state, schedules, scalers, each rank's random states, the sampler's place
      in the epoch (`resume-equivalence`);
    - a kill at any moment of the save leaves the old checkpoint whole, or the
      new one: ``kills`` of them are planted (`checkpoint-atomic-save`; see
      `assert_atomic_save`); 0 leaves this out.

    ``ignore`` has names of what need not be equal (``trainer.seconds``,
    ``random state of random``). Random states and counters that no step moves
    are not compared. All random states are put back at the end.
    """
    __tracebackhide__ = True
    with _trial("assert_checkpoint_resumable", save, load, build, step) as trial:
        trial.begin(before)
        trial.go_on(after)
        trial.resume()
        trial.compare(after, ignore)
        if bare:
            trial.cross()
        if kills:
            trial.kill(kills)


# --- behind them


def _trial(
    title: str,
    save: Callable[[Any, Path], object],
    load: Callable[[Any, Path], Any],
    build: Build,
    step: Callable[[Any], object],
) -> Any:
    from ddpcheck.checkpoint_trials.trial import Trial

    for name, function in (("save", save), ("load", load), ("build", build), ("step", step)):
        if not callable(function):
            raise TypeError(f"ddpcheck.{title}: {name} is to be a function, and {function!r} is none")
    rank = current(f"ddpcheck.{title}")
    return Trial(title, rank, _folder(rank), build, step, save, load)


def _needs_modules(title: str, training: Any) -> None:
    from ddpcheck.probes.training_state.state_holders import modules

    if not modules(training):
        raise TypeError(
            f"ddpcheck.{title}: no module is found in this {type(training).__name__}: give the module, or what holds "
            "the modules and optimizers of the training: an object with attributes, a dict, a tuple"
        )


def _folder(rank: CurrentRank) -> Path:
    """A new folder that all ranks share."""
    folder = rank.tmp_path / f"checkpoint-{next(_folders)}"
    folder.mkdir(exist_ok=True)
    return folder


def _section(rank: CurrentRank) -> Any:
    from ddpcheck.probes.files.recorded_section import Section

    section = Section(rank._evidence_dir)
    section.begin()
    return section


_CHECKS = {
    "assert_single_writer": "checkpoint-single-writer",
    "assert_read_after_write": "checkpoint-read-after-write",
    "assert_map_location": "checkpoint-map-location",
}


def _record(
    title: str,
    save: Callable[[], object] | None = None,
    load: Callable[[], object] | None = None,
    training: Any = None,
) -> None:
    """Call these on record, and have that judged."""
    __tracebackhide__ = True
    from ddpcheck.checkpoint_trials.trainings import moved, own_devices
    from ddpcheck.checkpoint_trials.user_calls import Failed, attempt, told
    from ddpcheck.evidence.recorded_save import Recorded
    from ddpcheck.probes.recording.patching import probed
    from ddpcheck.probes.training_state import held_values

    rank = current(f"ddpcheck.{title}")
    if training is not None:
        _needs_modules(title, training)
    section = _section(rank)
    before = held_values.values(training) if training is not None else {}
    failed = None
    try:
        with section.heard():
            if save is not None:
                attempt("save", probed(save))
            if load is not None:
                attempt("load", probed(load), section.so_far)
    except Failed as error:
        failed = error
    evidence = section.so_far()
    section.end()
    facts = Recorded(
        evidence=evidence,
        failure=told(failed),
        own=own_devices(before) or (str(rank.device),),
        moved=moved(before, held_values.values(training)) if training is not None else {},
    )
    assert_judged(_CHECKS[title], title, facts, stuck=failed is not None)
