"""The fixes in the terms of training libraries."""

from __future__ import annotations

from ddpcheck.checks.rng_independence.run import WORKERS
from ddpcheck.checks.rng_independence.states import APART

FIXES = {
    APART: {
        "accelerate": (
            "Seed each process apart after the model is built: `set_seed(seed, device_specific=True)` of "
            "accelerate.utils. What processes have to draw alike needs a generator of its own."
        ),
        "lightning": (
            "seed_everything() gives every rank the same seed. Seed each rank apart when the training begins: "
            "`torch.manual_seed(seed + self.global_rank)` in `on_train_start()`, and numpy and random likewise."
        ),
        "fabric": (
            "seed_everything() gives every rank the same seed. Seed each rank apart after `fabric.setup()`: "
            "`torch.manual_seed(seed + fabric.global_rank)`, and numpy and random likewise."
        ),
        "transformers": (
            "The Trainer gives every process the same seed. Seed each apart in a callback's on_train_begin(): "
            "`torch.manual_seed(args.seed + args.process_index)`, and numpy and random likewise."
        ),
    },
    WORKERS: {
        "lightning": (
            "Give the DataLoader no worker_init_fn, and call `seed_everything(seed, workers=True)`: each worker is "
            "then seeded by its rank, its number and what the rank has drawn."
        ),
        "fabric": (
            "Give the DataLoader no worker_init_fn, and call `fabric.seed_everything(seed, workers=True)`: each worker "
            "is then seeded by its rank, its number and what the rank has drawn."
        ),
    },
}
