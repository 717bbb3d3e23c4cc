"""The rules of epoch-reshuffle on what workers hold of a dataset, and on batches that are kept."""

from __future__ import annotations

from ddpcheck.checks.rows import Words
from ddpcheck.checks.sample_rows import SampleRow

ROWS = (
    SampleRow(
        rule="outdated-dataset-in-workers",
        pattern="old copy",
        expected="pass {number} to read the dataset as the program has set it before",
        found="the workers to hold {names} as it was before pass {since}, and the program to hold something else",
        causes={
            "": Words(
                "persistent_workers keeps the copies of the dataset that the workers were given at first; what the "
                "program changes later, it changes in a copy of its own",
                "Leave persistent_workers off, keep the value in shared memory (torch.tensor(0).share_memory_()), or "
                "let it come to the workers with the indices.",
            )
        },
        subject="the copies of {dataset} in the worker processes",
    ),
    SampleRow(
        rule="batches-of-first-pass-again",
        pattern="replayed",
        expected="another pass through the loader, in another order, when it has come to its end",
        found="{forwards:,} forwards after its end to get the batches of this pass once more, in the same order",
        causes={
            "": Words(
                "the batches of the first pass were kept, by itertools.cycle or in a list, and the loader is not gone "
                "through again",
                "Begin a new pass through the loader, after set_epoch, whenever one has ended.",
            )
        },
    ),
)
