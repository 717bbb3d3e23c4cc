"""``checkpoint-load-complete``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="a load leaves no parameter silently untouched",
    order=20,
    unit="load",
    rules=(
        Rule("failed-load", "a load raises an error"),
        Rule("state-dict-mismatch", "load_state_dict() rejects the keys or shapes of a checkpoint"),
        Rule("untouched-tensors", "a load leaves parameters or buffers untouched"),
        Rule("values-not-restored", "parameters or buffers differ from the saved ones after a load"),
        Rule("state-kept-without-copy", "a load puts back the memory of the module itself, taken before some steps"),
        Rule("partly-loaded-tensor", "a load writes some elements of a tensor, and not all"),
        Rule("load-not-verifiable", "tensors could not be overwritten before a load to test it"),
        Rule("unmatched-keys", "a load with strict=False skips parameters whose keys do not match"),
        Rule("different-loaded-states", "ranks load different states"),
        Rule("load-on-some-ranks", "some ranks load a state, and others do not"),
        Rule("optimizer-state-not-loaded", "a training continues without the optimizer state of its checkpoint"),
        Rule("moments-of-other-weights", "parameters are not what was loaded with their moments"),
        Rule("optimizer-built-after-load", "the optimizer that steps was built after the load of its state"),
        Rule("reinitialised-after-load", "a model is trained that has nothing of what was loaded for it"),
    ),
    follows=("checkpoint-read-after-write",),
    rests_on=(
        "groups",
        "wrappers",
        "collectives",
        "steps",
        "reduced parameters",
        "loads",
        "state loads",
        "taken state",
        "saved state",
        "loaded state",
        "module calls",
        "optimizers",
    ),
    asserted_on=("held state", "buffers"),
    assertions=("assert_load_complete", "assert_checkpoint_resumable"),
)
