"""A rank in an interpreter of its own, where forking is not safe."""

from __future__ import annotations

import os
import socket

from ddpcheck.ranks import messages
from ddpcheck.ranks.channel import Channel
from ddpcheck.ranks.pytest_host import Host
from ddpcheck.zygote.imports import import_torch
from ddpcheck.zygote.rank_life import be_rank


def main(fd: int) -> None:
    """Be the rank that the first message over ``fd`` says."""
    parent = os.getppid()
    channel = Channel(socket.socket(fileno=fd))
    hello = channel.receive()
    assert isinstance(hello, messages.Hello)
    assert hello.plan is not None
    plan, rank, run_dir = hello.plan, hello.rank, hello.runtime_dir

    def serve(host: Host) -> None:
        import_torch()
        host.collect(plan.path)
        be_rank(host, plan, rank, channel, run_dir, parent)

    Host(hello, serve).run()
