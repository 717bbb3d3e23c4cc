"""What the conformance suite does for one of its checks, in words."""

from __future__ import annotations

import difflib
import re

from ddpcheck.conformance.suite_checks import BY_CHECK
from ddpcheck.trainings.situations import BY_NAME, Situation
from ddpcheck.trainings.suite_row import ANY, Row
from ddpcheck.vocabulary.wording import count, listing

ADAPTER = "`fit` trains the job's model, by its loss, for all epochs, and returns"

_NETS = {
    "integers": "a linear model of small integers",
    "batchnorm": "a model with BatchNorm",
    "branches": "a model with branches",
    "dropout": "a model with dropout",
    "tied": "a model with shared and frozen weights",
    "tokens": "a model of five tokens to a sample",
    "pairs": "a model of two views",
}

_PARALLELISM = {
    "fsdp2": "sharded over all ranks",
    "hsdp": "sharded over two ranks, in two copies",
    "ddp-tp": "cut in two by tensor parallelism, in two copies",
}

_OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adamw": "AdamW"}
_RATES = {"steps": " and another rate at every step", "plateau": " and ReduceLROnPlateau"}

_SIZES = re.compile(r"-\d+ranks?$")


def check_of(name: str) -> Row | None:
    """The check of the suite that is meant by a name, which may be that of an item; None where there is none."""
    return BY_CHECK.get(_SIZES.sub("", name))


def nearest(name: str) -> str | None:
    """The name of a check that somebody who wrote this probably meant; None where there is none like it."""
    return next(iter(difflib.get_close_matches(_SIZES.sub("", name), BY_CHECK, n=1)), None)


def about(check: Row) -> str:
    """What is particular of the situations that it is judged by: of the last, where these go on from each other."""
    last = check.situations[-1]
    return "all trainings that come to their end" if last == ANY else BY_NAME[last].about


def described(check: Row) -> str:
    """The situations of a check with their settings, as Markdown."""
    lines = ["## In the conformance suite", ""]
    if check.name == "adapter":
        lines += [f"It comes before all others: {ADAPTER}.", ""]
    if check.situations == (ANY,):
        return "\n".join([*lines, f"`{check.name}` looks at {about(check)}{_ranks(check)}.", ""])
    trained = [BY_NAME[name] for name in check.situations]
    if len(trained) == 1:
        told = f"`{check.name}` looks at {about(check)}{_ranks(check)}: {settings(trained[0])}."
        return "\n".join([*lines, told, ""])
    lines += [f"`{check.name}` compares, of one training with {settings(trained[0])}{_ranks(check)}:", ""]
    return "\n".join([*lines, *(f"- {situation.about}" for situation in trained), ""])


def _ranks(check: Row) -> str:
    if check.world_sizes:
        return f", in {listing([str(size) for size in check.world_sizes])} ranks only"
    return f", in {check.least} ranks or more" if check.least > 1 else ""


def settings(situation: Situation) -> str:
    """What a job of this situation asks for, as a list."""
    size = situation.size
    samples = [f"{size.each} samples for each rank"] if size.each else []
    samples += [f"{count(size.more, 'sample')} {'more' if size.each else 'in all'}"] if size.more else []
    said = [
        _PARALLELISM.get(situation.parallelism, ""),
        _NETS.get(situation.net, ""),
        " and ".join(samples) + (f" in batches of {situation.batch_of_all} of all ranks together"
                                 if situation.batch_of_all else f" in batches of {situation.batch_size}"),
        f"{count(situation.epochs, 'epoch')} {'shuffled' if situation.shuffle else 'in order'}",
        _OPTIMIZERS[situation.optimizer] + _RATES.get(situation.rates, ""),
        f"{situation.accumulation} micro-batches to a step" if situation.accumulation > 1 else "",
        f"clipped to {situation.clip_norm}" if situation.clip_norm is not None else "",
        "drop_last" if situation.drop_last else "",
        "iterable" if situation.iterable else "",
        f"{situation.workers} workers" if situation.workers else "",
        f"{situation.validation} samples to validate" if situation.validation else "",
        situation.precision if situation.precision != "float64" else "",
        f"saved every {situation.save_every} steps" if situation.save_every and situation.save_every > 1 else "",
        "saved at every step" if situation.save_every == 1 else "",
    ]  # fmt: skip
    return ", ".join(part for part in said if part)
