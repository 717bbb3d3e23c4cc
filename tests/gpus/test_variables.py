"""What of the environment goes into a bundle, and what of it nobody else may see."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.gpu.variables import MASKED, masked, told


def test_those_that_change_what_gpus_do():
    """By their beginnings, and those of the loader; nothing else of the environment."""
    environment = {
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "GPU-8a3c1f52-4b6e-9d07-51aa-0c2f9e7b6d43",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
        "LD_PRELOAD": "/opt/nccl/lib/libnccl.so.2",
        "OMP_NUM_THREADS": "4",
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "MY_CUDA_THING": "x",
    }
    assert told(environment) == [
        "CUDA_VISIBLE_DEVICES=GPU-8a3c1f52-4b6e-9d07-51aa-0c2f9e7b6d43",
        "LD_PRELOAD=/opt/nccl/lib/libnccl.so.2",
        "NCCL_DEBUG=INFO",
        "OMP_NUM_THREADS=4",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    ]


@pytest.mark.parametrize("name", ["TORCH_HUB_TOKEN", "NCCL_NET_PASSWORD", "TORCH_API_KEY", "CUDA_AUTH", "TORCH_PASS"])
def test_names_of_secrets(name):
    """Whatever their values look like."""
    assert told({name: "plain"}) == [f"{name}={MASKED}"]


@pytest.mark.parametrize(
    "value",
    [
        "https://user:hunter22@mirror.example/whl",
        "ghp_0123456789abcdefABCDEF0123456789abcd",
        "hf_AbCdEfGhIjKlMnOpQrStUv",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdef",
        "Bearer abcdefghijklmnop",
        "https://bucket.example/x?X-Amz-Signature=0123abcd&y=1",
        "d41d8cd98f00b204e9800998ecf8427e",
        "kX9vQ2mZ7pL4rT8wB3nC6yH1",
    ],
)
def test_values_of_secrets(value):
    """Passwords in addresses, keys with known beginnings, and what looks as if it were drawn at random."""
    (line,) = told({"TORCH_SOMETHING": value})
    assert MASKED in line
    for part in ("hunter22", "0123456789abcdef", "AbCdEf", "eyJz", "abcdefghijklmnop", "0123abcd", "d41d8", "kX9v"):
        assert part not in line


@pytest.mark.parametrize(
    "value",
    [
        "MIG-8a3c1f52-4b6e-9d07-51aa-0c2f9e7b6d43",
        "/usr/local/cuda-12.8/targets/x86_64-linux/lib:/opt/aws-ofi-nccl/lib",
        "expandable_segments:True,garbage_collection_threshold:0.8",
        "INIT,NET,ENV,GRAPH,COLL",
    ],
)
def test_what_is_no_secret_stays(value):
    """Else a bundle says nothing."""
    assert told({"CUDA_X": value}) == [f"CUDA_X={value}"]


def test_home_and_host(monkeypatch):
    """A path below the home does not say whose it is, nor a log on which machine it was written."""
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-7")
    text = "gpu-node-7:12:13 [0] NCCL INFO /home/ada/venv/lib /home/adam/x gpu-node-71"
    assert masked(text) == "(host):12:13 [0] NCCL INFO ~/venv/lib /home/adam/x gpu-node-71"
    assert masked("gpu-node-7-12-345.evidence gpu-node-7-b") == "(host)-12-345.evidence gpu-node-7-b"
