"""Whether a function's text divides or multiplies by the number of ranks."""

from __future__ import annotations

import pytest

from ddpcheck.checks.gradient_oracle.world_factor import Text, divisions, products


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
    ],
)
def test_a_division(line):
    text = f"    def step(self, loss):\n        {line}\n"
    assert divides([text])
    assert not multiplies([text]) or "*" in line


@pytest.mark.parametrize("line", ["loss = loss / steps", "loss = world_size / loss", "share = len(data) // world_size"])
def test_no_division(line):
    assert not divides([f"def step(loss):\n    {line}\n"])


@pytest.mark.parametrize("line", ["loss = loss * world_size", "loss = num_gpus * loss", "loss *= get_world_size()"])
def test_a_product(line):
    text = f"def step(loss):\n    {line}\n"
    assert multiplies([text])
    assert not divides([text])


def test_a_name_that_stands_for_it():
    assert divides(["def main():\n    W = dist.get_world_size()\n    (loss / W).backward()\n"])
    assert not divides(["def main():\n    W = len(batch)\n    (loss / W).backward()\n"])


def test_what_is_no_whole_function():
    assert not divides(["lambda loss: loss / world_size)", ""])


MODULE = """
lr = 0.1 * world_size

def step(loss):
    loss = loss * world_size
    loss.backward()
"""


def test_the_line():
    """Once, however many of the texts have it; and whether it is a loss that is scaled there."""
    inner = Text("train.py", 4, "step", MODULE.partition("0.1 * world_size\n\n")[2])
    found = products([Text("train.py", 1, "<module>", MODULE), inner])
    told = [(one.where.line, one.where.function, one.of_loss) for one in found]
    assert told == [(2, "<module>", False), (5, "step", True)]
