"""``buffer-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds="buffers that are meant to agree do",
    order=170,
    unit="comparison",
    counted=False,
    rules=(
        Rule("different-buffers-in-forward", "ranks begin a forward with different buffers"),
        Rule("different-buffers-after-step", "ranks hold different buffers after a step"),
        Rule("different-buffers-at-evaluation", "ranks evaluate one model with different buffers"),
        Rule("different-model-attributes", "plain attributes of the model differ between ranks", advisory=True),
        Rule("buffers-updated-twice", "a recomputed forward updates a buffer a second time"),
    ),
    follows=(*ORIGINS, "initial-broadcast", "gradient-sync", "parameter-sync"),
    rests_on=(
        *GROUPS,
        "steps",
        "forwards",
        "armed forwards",
        "optimizers",
        "broadcasts of buffers",
        "buffers",
        "module calls",
        "recomputation",
    ),
)
