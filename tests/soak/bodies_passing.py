"""The bodies of tests that pass, one function for each kind in scenarios.py; some leave something behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory
from typing import Any

import pytest
import torch
import torch.distributed as dist
from bodies_common import culprit, daemonise, meet, train

import ddpcheck

# --- what passes


def steps(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    flat = torch.cat([p.detach().reshape(-1) for p in train(ddp, number).parameters()])
    everyones = [torch.empty_like(flat) for _ in range(ddp.world_size)]
    dist.all_gather(everyones, flat)
    assert all(torch.equal(everyones[0], other) for other in everyones)


def steps_asserted(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    ddpcheck.assert_replicas_identical(train(ddp, number, asserted=True))


def collectives(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    chance = random.Random(number)
    for _ in range(chance.randint(1, 20)):
        tensor = torch.full((chance.choice([1, 100, 100_000]),), float(ddp.rank))
        match chance.choice(["all_reduce", "broadcast", "gather", "objects", "barrier"]):
            case "all_reduce":
                dist.all_reduce(tensor)
                assert tensor[0] == 1
            case "broadcast":
                dist.broadcast(tensor, src=1)
                assert tensor[0] == 1
            case "gather":
                out = [torch.empty_like(tensor) for _ in range(2)]
                dist.all_gather(out, tensor)
                assert [t[0].item() for t in out] == [0, 1]
            case "objects":
                got: list[Any] = [None, None]
                dist.all_gather_object(got, {"rank": ddp.rank})
                assert got == [{"rank": 0}, {"rank": 1}]
            case _:
                dist.barrier()


def nothing(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    assert dist.is_initialized()


def one_rank_late(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        time.sleep(random.Random(number).random())
    meet()


def destroys_the_group(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()
    dist.destroy_process_group()


def meddles_with_state(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    assert "SOAK_MEDDLED" not in os.environ
    assert torch.get_default_dtype() is torch.float32
    assert torch.initial_seed() != 123
    assert not hasattr(torch, "soak_meddled")
    assert dist.get_world_size() == 2
    os.environ["SOAK_MEDDLED"] = "1"
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(123)
    torch.set_num_threads(2)
    torch.soak_meddled = True  # type: ignore[attr-defined]
    os.chdir("/")
    sys.path.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dist.new_group([0])
    meet()


def uses_fixtures(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    monkeypatch = request.getfixturevalue("monkeypatch")
    capsys = request.getfixturevalue("capsys")
    own = request.getfixturevalue("tmp_path")
    monkeypatch.setenv("SOAK_PATCHED", "1")
    print("rank", ddp.rank)
    assert capsys.readouterr().out == f"rank {ddp.rank}\n"
    (own / "file").write_text(str(ddp.rank))
    assert [p.name for p in own.iterdir()] == ["file"]
    (ddp.tmp_path / f"of{ddp.rank}").touch()
    meet()
    assert sorted(p.name for p in ddp.tmp_path.iterdir()) == ["of0", "of1"]


def prints_a_lot(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    for _ in range(2000):
        print("o" * 200)
        print("e" * 200, file=sys.stderr)
    os.write(1, bytes(range(256)) * 100)
    os.write(2, b"\xed\xa0\x80" * 100)
    meet()


def closes_standard_streams(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    os.close(0)
    os.close(1)
    os.close(2)
    meet()


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((100,), float(index))


def loads_with_workers(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=1 + number % 2)
    assert sum(float(batch[:, 0].sum()) for batch in loader) == sum(range(64))
    meet()


def forks_and_child_returns(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if os.fork() == 0:
        return
    os.wait()
    meet()


# --- what passes and leaves something behind


def leaves_a_child(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()
    if culprit(ddp, number):
        subprocess.Popen(["sleep", "300"])


def leaves_a_daemon(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        daemonise()
        time.sleep(0.1)  # until it has become the program by whose name it is told
    meet()


def leaves_a_forked_daemon(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    """Left behind is a copy of the rank, with all that it has open."""
    if culprit(ddp, number):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(300)
            os._exit(0)
        os.wait()
    meet()


def leaves_a_thread(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        threading.Thread(target=time.sleep, args=(300,)).start()
    meet()


def leaves_shared_memory(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    request.config._soak_kept = shared_memory.SharedMemory(create=True, size=1000)  # type: ignore[attr-defined]
    meet()


def abandons_workers(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    request.config._soak_kept = iterator = iter(loader)  # type: ignore[attr-defined]
    next(iterator)
    meet()
