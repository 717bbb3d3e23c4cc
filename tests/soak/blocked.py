"""The tests that interrupt.py interrupts: ranks that wait for ever, each in its own way.

The way is named by the environment variable ``SOAK_WAY``; the last two are about how ranks come to be.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any

import pytest

WAY = os.environ["SOAK_WAY"]
IN_RANKS = "DDPCHECK_RUN" in os.environ

if IN_RANKS:
    # Not in pytest's own process: a KeyboardInterrupt in the midst of importing torch may be lost.
    import torch
    import torch.distributed as dist
    from bodies_common import daemonise
if WAY == "imports" and IN_RANKS:
    time.sleep(300)
if WAY == "fresh" and IN_RANKS:
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()


@pytest.mark.ddp(world_size=3)
def test_blocked(ddp: Any) -> None:
    if ddp.rank == 0:
        if WAY == "spins":
            re.match("(a+)+$", "a" * 60 + "b")
        if WAY == "daemon":
            daemonise()
        time.sleep(300)
    dist.all_reduce(torch.ones(1))
