"""The rules of shard-partition on what one rank reads, and on what all ranks' models are given."""

from __future__ import annotations

from ddpcheck.checks.rows import Words
from ddpcheck.checks.sample_rows import SampleRow

ROWS = (
    SampleRow(
        rule="samples-read-again",
        pattern="position",
        expected="the pass that goes on after a load to leave out the {read:,} samples that the ranks had read when "
        "the state was saved",
        found="{again:,} of them to be read again: it leaves out {left:,}, of which {unread:,} had not been read",
        causes={
            "one rank": Words(
                "what one rank has read was counted, and taken off the order of all ranks",
                "Count what all ranks have read where the order of all of them is cut, or cut each rank's own share.",
            ),
            "updates": Words(
                "steps of the optimizer were counted, each of which is made of several batches",
                "Count the batches that have been trained on, not the steps.",
            ),
            "one rank or updates": Words(
                "what one rank has read was counted, or steps of the optimizer, each made of several batches",
                "Count the batches that all ranks have trained on.",
            ),
            "epoch": Words(
                "the sampler was set to epoch {epoch}, and the pass that goes on is that of epoch {before}",
                "Save the epoch beside the position, and call set_epoch with it before the pass goes on.",
            ),
            "order": Words(
                "the order of the samples is not that of the pass before the load",
                "Save what the order depends on (seed, epoch, the state of its generator), and restore it before the "
                "pass goes on.",
            ),
            "": Words(
                "the position that was saved is not the one that the ranks had come to",
                "Save how many batches have been trained on, and leave out as many.",
            ),
        },
        at_loader=True,
    ),
    SampleRow(
        rule="same-samples-twice",
        pattern="again",
        expected="two passes that train one model on one dataset to give other samples than each other, or the same in "
        "another order",
        found="{samples:,} samples that a pass from {first} gives as well, one after the other in the same order",
        causes={
            "side by side": Words(
                "both loaders draw the same order of one dataset",
                "Give each loader a part of the dataset of its own, or its {sampler} a seed of its own.",
            ),
            "": Words(
                "the pass begins the order of the one before anew, which was left before its end: what comes later in "
                "that order is read by neither",
                "Go on with the iterator that was left, or give the second pass the part of the dataset that the first "
                "one did not come to.",
            ),
        },
    ),
    SampleRow(
        rule="repeated-samples",
        pattern="workers",
        expected="each sample from one worker process in one pass through the training data",
        found="{samples:,} samples from {workers} workers of one rank; {surplus:,} of them repeat a sample of another "
        "worker",
        causes={
            "": Words(
                "the dataset gives each worker process of a rank the same samples, or each shuffles an order of its "
                "own before it takes its part",
                "Cut the samples or files by rank and by worker (get_worker_info()), from an order that is the same "
                "in all of them: the same seed and epoch for what shuffles it.",
            )
        },
    ),
    SampleRow(
        rule="no-samples-read",
        pattern="nothing",
        expected="a pass in training to give samples",
        found="a pass that gives none on any rank, though the sampler has samples to give",
        causes={
            "dropped": Words(
                "drop_last leaves out the only batch that the rank has, which is not full",
                "Take a smaller batch_size, or drop_last=False.",
            ),
            "": Words(
                "what gives the samples stood at its end when the pass began, as with a position that was loaded",
                "Set the position back to the beginning when a pass has ended.",
            ),
        },
    ),
    SampleRow(
        rule="same-inputs-on-ranks",
        pattern="shared",
        subject="the inputs of {name}",
        expected="other samples on every rank",
        found="the same inputs on all ranks in {equal:,} of {of:,} forwards compared",
        causes={
            "": Words(
                "every rank reads or draws the same batch, so that more ranks train on no more data",
                "Let each rank take its own part of the data, or draw with a seed that depends on the rank.",
            )
        },
    ),
)
