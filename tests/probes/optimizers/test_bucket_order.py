"""Which gradients lie in a bucket: looked at in few elements, by one thread."""

from __future__ import annotations

import sys

from tests import progress

FORKED = """
import os
import torch
from ddpcheck.probes.optimizers.bucket_order import _order
torch.set_num_threads(2)
gradients = [torch.full((1 << 20,), float(place)) for place in (1, 2, 3)]
bucket = torch.cat([gradients[2], gradients[0]]) / 2  # by two threads, which a fork has not got
child = os.fork()
if child == 0:
    os._exit(_order(bucket, gradients, 0.5) == [2, 0])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_of_a_process_that_has_had_threads():
    """Large gradients are no reason to wait for threads of the parent."""
    ran = progress.run([sys.executable, "-c", FORKED], text=True)
    assert ran.stdout.strip() == "1", ran.stderr
