"""The documents, and what each claims: what the tests have made of it, and how they show it.

The tests of a claim are in the files whose names begin with
``test_claim_`` and its number, in two digits.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

DOCUMENTS = {
    "S0": "PyTorch's getting-started tutorial",
    "S1": "a vendor's tutorial on image classification",
    "S2": "a university cluster's guide",
    "S3": "an encyclopedia's entry",
    "S4": "a deep-dive article",
}
"""What is taught, by a short name; the programs of each are in fixtures/."""

Outcome = Literal["verified", "refuted", "refuted in part"]


class Claim(NamedTuple):
    """One claim, and what came of it."""

    number: int
    documents: tuple[str, ...]
    claim: str
    """The claim, in as few words as will do."""
    shows: str
    """What the tests show: what holds, and the planted fault that is caught."""
    outcome: Outcome = "verified"
    """What the tests show it to be, if they pass."""


CLAIMS = tuple(
    Claim(number, tuple(documents.split()), *texts)
    for number, (documents, *texts) in enumerate(
        [
            ("S0 S2", "the constructor broadcasts rank 0's parameters and buffers",
             "ranks that seed themselves are equal after the wrap; a layer that one rank resets after it is caught"),
            ("S0 S4", "after backward(), .grad holds the synchronised gradient",
             "it is that of one process on the concatenated batch; model.module and no_sync() are caught"),
            ("S4", "gradients are averaged, not summed",
             "the ranks' own gradients add up to world_size times DDP's; a loss scaled for a sum is caught"),
            ("S4", "gradients are synchronised, parameters are not",
             "a parameter changed on one rank is as far off after every later step, and is caught"),
            ("S0 S1 S4", "buckets are reduced while backward still runs",
             "with several buckets the first is reduced before the last gradient is there; with one, it is not"),
            ("S0", "constructor, forward and backward are synchronisation points",
             "a rank that leaves one of them out is named, with the line where the others wait; "
             "a test ends at its deadline, with every rank's stack"),
            ("S0", "skewed ranks need a larger timeout in init_process_group",
             "a rank that is later than a small timeout fails the others; as late under a large one, it does not"),
            ("S0 S2 S4", "saving on one rank is enough",
             "the file's digest is that of every rank's state; replicas that have parted are caught"),
            ("S0", "no rank may load before the save is complete",
             "a load without a barrier is caught, even where the race went well; with the barrier nothing is said"),
            ("S0 S2", "without map_location a load lands on the saving device",
             "every rank's tensors are on rank 0's device, and are caught; with map_location they are its own"),
            ("S0", "after a backward, rank 0 may delete the checkpoint",
             "the backward has waited for every load; deleting the file before it is caught"),
            ("S0", "a module on several devices takes no device_ids",
             "DDP refuses them; without, the model trains, with its outputs on the second device"),
            ("S0", "devices 2r and 2r + 1 keep the ranks apart",
             "four ranks use eight devices, none of them twice; a mapping that is off by one is caught"),
            ("S0", "processes cannot share a device",
             "true of NCCL before 2.30; two ranks on one device train under gloo, and under NCCL 2.30 if it is allowed",
             "refuted in part"),
            ("S0 S3", "FileStore, TCPStore and env:// give the same group",
             "ten steps end in the same bits under each; ranks that meet at different places never meet"),
            ("S1 S2 S4", "DistributedSampler's shards are disjoint and cover the data",
             "for all sizes, ranks, seeds and epochs, padding aside; overlaps and gaps are caught"),
            ("S2", "the sampler needs no communication",
             "a process without any group computes the same shards; a rank's own seed or epoch is caught"),
            ("S2", "455 samples, 2 ranks, batches of 8: 28 batches each, 7 dropped",
             "28 each, 56 in all; exactly, eight positions of the padded 456 are dropped, one perhaps the padding"),
            ("S1", "(unsaid) its loop never calls set_epoch",
             "the article's program repeats its order in every epoch, and is caught; with the line it is silent"),
            ("S2", "resume loads into the unwrapped module, then wraps",
             "the next steps are those of a run that never stopped; a load into one rank after the wrap is caught"),
            ("S2 S4", "only rank 0 writes checkpoints and logs",
             "all ranks writing one path is caught, also where the file happens to be whole"),
            ("S2 S3", "destroy_process_group releases the resources",
             "sockets are closed, and a second group trains in the same process; a group left behind is reported"),
            ("S2", "rank is global, local rank is per node",
             "on two nodes of two, ranks are 0 to 3 and local ranks 0 and 1 twice; sharding by local rank is caught"),
            ("S2", "the GPUs must cover the launched processes",
             "one sentence, before any rank starts, from the test's mark and from the command; "
             "fewer ranks than GPUs are let through"),
            ("S3", "MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK are required",
             "an error names each missing one, and a rank outside of the world; with all four the group is made"),
            ("S3", "with no backend named, gloo and nccl are both made",
             "gloo for the CPU without a GPU, and nccl with one, alone in newer versions",
             "refuted in part"),
            ("S3", "DDP is fault-tolerant: it handles errors during training",
             "a rank's death fails the others; the launcher alone starts all anew, if set to, and they train from "
             "the last checkpoint", "refuted"),
            ("S3", "(unsaid) its example calls what torch has not, in one rank of four",
             "each is reported plainly, with its line, and nothing hangs; fixed, it trains on four ranks"),
            ("S4", "without DistributedSampler all ranks see the same data",
             "half of what two ranks read is repetition, three quarters with four; with the sampler none is"),
            ("S4", "non-deterministic operations make the replicas diverge",
             "noise of a rank's own in the forward pass leaves them equal to the bit; state that is not reduced "
             "(buffers, optimizer) does diverge, and is caught", "refuted in part"),
            ("S4", "a move to the device needs the wrap's own statement",
             "before the wrap or within it, both train alike to the bit; a real move after it, which stops the "
             "reduction, is caught",
             "refuted"),
            ("S4", "mixed precision combines with DDP",
             "bf16 autocast holds the invariants; a loss scale that is another on each rank is caught"),
            ("S0 S1", "DataParallel gives the same gradients in one process",
             "both give the gradient of one process on the whole batch; a lost replica's gradient is caught"),
        ],
        1,
    )
)  # fmt: skip
