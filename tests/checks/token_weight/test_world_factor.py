"""Whether a function's text divides or multiplies by the number of ranks."""

from __future__ import annotations

import pytest

from ddpcheck.checks.token_weight.world_factor import Text, divisions, products


def divides(texts):
    return bool(divisions([Text("train.py", 10, "f", text) for text in texts]))


def multiplies(texts):
    return bool(products([Text("train.py", 10, "f", text) for text in texts]))


@pytest.mark.parametrize(
    "line",
    [
        "loss = loss / dist.get_world_size()",
        "loss /= world_size",
        "loss /= self.trainer.world_size",
        "(loss / (world_size * steps)).backward()",
        "loss = loss / int(os.environ['WORLD_SIZE'])",
        "loss = loss / accelerator.num_processes",
        "accelerator.backward(loss / world_size)",
    ],
)
def test_a_division(line):
    text = f"    def step(self, loss):\n        {line}\n        loss.backward()\n"
    assert divides([text])
    assert not multiplies([text]) or "*" in line


@pytest.mark.parametrize(
    "line",
    [
        "loss = loss / steps",
        "loss = world_size / loss",
        "share = len(data) // world_size",
        "logged = loss.detach() / world_size",  # a mean for the log
        "loader = make(world_size)\n    loss = loss / loader",
        "x = 1 / f(" + "+".join(["1"] * 500) + ")",
    ],
)
def test_no_division_of_the_loss(line):
    assert not divides([f"def step(loss):\n    {line}\n    loss.backward()\n"])


@pytest.mark.parametrize("line", ["loss = loss * world_size", "loss = num_gpus * loss", "loss *= get_world_size()"])
def test_a_product(line):
    text = f"def step(loss):\n    {line}\n    loss.backward()\n"
    assert multiplies([text])
    assert not divides([text])


def test_a_rate_for_so_many_ranks_is_no_product_of_the_loss():
    assert not multiplies(["def main():\n    lr = 0.1 * world_size\n    loss.backward()\n"])


def test_in_the_function_that_the_loss_comes_from():
    helper = "def mean(value):\n    value /= world_size\n    return value\n"
    assert divides([f"{helper}\ndef step(loss):\n    loss = mean(loss)\n    loss.backward()\n"])
    assert not divides([f"{helper}\ndef step(loss):\n    shown = mean(loss)\n    loss.backward()\n"])


def test_a_name_that_stands_for_it():
    assert divides(["def main():\n    W = dist.get_world_size()\n    (loss / W).backward()\n"])
    assert not divides(["def main():\n    W = len(batch)\n    (loss / W).backward()\n"])


def test_what_is_no_whole_function():
    assert not divides(["lambda loss: loss / world_size)", ""])


def test_a_tree_that_is_too_deep():
    deep = "-" * 20_000 + "1"
    assert not divides([f"def step(loss):\n    x = {deep}\n    (loss / world_size).backward()\n"])


MODULE = """
lr = 0.1 * world_size

def step(loss):
    loss = loss * world_size
    loss.backward()
"""


def test_the_line():
    """Once, however many of the texts have it."""
    inner = Text("train.py", 4, "step", MODULE.partition("0.1 * world_size\n\n")[2])
    found = products([Text("train.py", 1, "<module>", MODULE), inner])
    assert [(one.line, one.function) for one in found] == [(5, "step")]
