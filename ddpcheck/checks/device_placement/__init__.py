"""``device-placement``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="parameters, inputs and outputs are where they belong, and no two ranks share a device by accident",
    order=10,
    unit="module",
    rules=(
        Rule("misplaced-model", "parameters or buffers are not on their rank's device"),
        Rule("misplaced-inputs", "inputs are not on the device of the model"),
        Rule("misplaced-targets", "targets are not on the device of the outputs"),
        Rule("misplaced-outputs", "outputs are not on the device of the model"),
        Rule("misplaced-optimizer-state", "optimizer state is not on the device of its parameter"),
        Rule("model-on-cpu", "a rank computes on the CPU instead of its device"),
        Rule("shared-gpu", "several ranks use one GPU"),
        Rule("memory-on-another-gpu", "a rank holds memory on the GPU of another rank"),
        Rule("missing-device", "a rank is to use a GPU that does not exist"),
        Rule("wrong-device-ids", "device_ids do not name the GPU of the module"),
        Rule("wrong-current-device", "the current device is not one of the rank's own"),
        Rule("model-without-tensors", "the model has no parameters or buffers to check"),
        Rule("unusable-arguments", "the arguments of the assertion cannot be used"),
    ),
    rests_on=("groups", "wrappers", "devices"),
    asserted_on=("devices",),
    assertions=("assert_device_placement",),
)
