"""Programs on which ddpcheck was wrong: what is right is let be, and what is wrong is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import run

from ddpcheck import cli
from tests.command.surroundings import REFUSED, allow

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "run"

LONG = pytest.mark.long

UNHARMED = [
    pytest.param("dtensor_optimizer", 1, (), 0, id="dtensor_optimizer"),
    pytest.param("tensor_parallel", 2, (), 0, id="tensor_parallel", marks=LONG),
    pytest.param("fsdp1", 2, (), 0, id="fsdp1", marks=LONG),
    pytest.param("fsdp2", 2, (), 0, id="fsdp2"),
    pytest.param("ignored_parameters", 2, (), 0, id="ignored_parameters", marks=LONG),
    *(
        pytest.param(name, 2, (), 0, id=name)
        for name in (
            "tensor_parallel_by_hand",
            "pipeline_equal_stages",
            "expert_parallel",
            "local_sgd",
            "truncate_only",
        )
    ),
    pytest.param("diloco", 2, (), 0, id="diloco", marks=LONG),
    pytest.param("reused_descriptor", 2, ("metrics",), 0, id="reused_descriptor"),
    pytest.param("surrogate_file", 1, (), 0, id="surrogate_file", marks=LONG),
    pytest.param("garbage_evidence", 2, (), 0, id="garbage_evidence", marks=LONG),  # it sleeps for 20 s
]
"""With how many ranks, and what arguments; what the program itself ends with."""


def told(tmp_path, forks, name, ranks, *arguments, options=()):
    document = tmp_path / "verdict.json"
    ran = run(tmp_path, *options, f"--nproc-per-node={ranks}", CASES / f"{name}.py", *arguments, forks=forks)
    assert "ddpcheck itself" not in ran.err, ran.err
    return ran, json.loads(document.read_text())


@pytest.mark.parametrize(("name", "ranks", "arguments", "code"), UNHARMED)
@pytest.mark.few(2)
def test_it_is_let_be(tmp_path, forks, name, ranks, arguments, code):
    """No error, and no other end; the differential test compares what it prints and writes."""
    ran, document = told(tmp_path, forks, name, ranks, *arguments)
    errors = [f["message"] for f in document["findings"] if f["severity"] == "error"]
    assert errors == []
    assert document["verdict"] in ("held", "nothing-checked"), ran.err
    assert [r["exit_code"] for r in document["ranks"]] in ([code] * ranks, [])
    assert ran.code in (0, 3)


@pytest.mark.parametrize("ended", [False, True])
def test_a_pipe_in_the_folder_of_evidence(tmp_path, forks, ended):
    """It is not waited for, neither while the program runs nor afterwards: what the ranks have written counts."""
    kept = tmp_path / "kept"
    ran, document = told(tmp_path, forks, "../hostile/fifo_in", 2, options=("--evidence", kept))
    if ended:
        code = cli.main(["judge", str(kept), "--no-config", "--json", str(tmp_path / "verdict.json")])
        document = json.loads((tmp_path / "verdict.json").read_text())
        assert code == ran.code
    assert (ran.code, document["verdict"], document["findings"]) == (0, "held", [])
    assert "its file cannot be read (it is no regular file)" in "".join(document["notes"])
    assert [r["exit_code"] for r in document["ranks"]] == [0, 0]


def test_settings_that_name_no_file(tmp_path, forks):
    ran = run(tmp_path, "--config", CASES.parent / "hostile" / "nul.toml", CASES / "surrogate_error.py", forks=forks)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "[tool.ddpcheck] has baseline with a character NUL" in ran.err


def test_an_argument_that_is_no_text(tmp_path, forks):
    """The program has its bytes, and the report an escape."""
    ran, document = told(tmp_path, forks, "undecodable_argument", 1, b"caf\xe9")
    assert r"ran ['caf\udce9']" in ran.out
    assert document["command"].endswith(r"undecodable_argument.py caf\udce9")


def test_a_mode_that_refuses_what_it_does_not_know(tmp_path, forks):
    """It is never asked for what a probe does; the differential test compares what it has counted."""
    allow(tmp_path)
    ran = run(tmp_path, "--nproc-per-node", "2", REFUSED / "fmode.py", forks=forks)
    assert ran.out.endswith("ok\n"), ran.err
    assert ran.code == 0


@LONG
@pytest.mark.parametrize("fault", ["rankseed", "optfirst", "clip", "nosync", "allwrite", "noepoch"])
def test_a_faulty_program_of_shards_is_not_harmed(tmp_path, forks, fault):
    """It ends as it does without us, whether its fault is found or not."""
    _, document = told(tmp_path, forks, "fsdp2_faults", 2, fault)
    assert document["verdict"] in ("held", "violated", "nothing-checked")
    assert [r["exit_code"] for r in document["ranks"]] == [0, 0]


def test_a_message_that_cannot_be_encoded(tmp_path, forks):
    """The program's own failure, and no defect of ours."""
    ran, document = told(tmp_path, forks, "surrogate_error", 1)
    assert (ran.code, document["verdict"]) == (1, "failed")
    assert [(f["check"], f["ranks"]) for f in document["findings"]] == [("rank-failure", [0])]
    assert [(r["rank"], r["exit_code"]) for r in document["ranks"]] == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("peeked_loader", ("64", "8", "4", "1"), {"shard-partition"}),
        pytest.param("peeked_loader", ("64", "8", "4", "0"), {"shard-partition"}, marks=LONG),
        ("double_step", (), {"reducer-coverage"}),
        ("two_evaluated_models", ("--epochs", "1"), {"parameter-sync", "buffer-sync"}),
        pytest.param("ema_buffers", (), {"buffer-sync"}, marks=LONG),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.few(1)
def test_it_is_found(tmp_path, forks, name, arguments, expected):
    """Under its check, each finding of its own, and nothing beside."""
    _, document = told(tmp_path, forks, name, 2, *arguments)
    assert {f["check"] for f in document["findings"]} == expected


def test_one_batch_for_all_ranks(tmp_path, forks):
    """An error: DDP averages what is equal, and the batches change."""
    ran, document = told(tmp_path, forks, "warning_only", 2)
    assert [(f["rule"], f["severity"]) for f in document["findings"]] == [
        ("shard-partition/same-inputs-on-ranks", "error")
    ]
    assert ran.code == 1


def test_a_warning_that_counts(tmp_path, forks):
    """Exit 1, and a failure in the JUnit file."""
    options = ("--strict", "--junit", tmp_path / "junit.xml")
    ran, document = told(tmp_path, forks, "peeked_loader", 2, "64", "8", "4", "1", options=options)
    assert [f["severity"] for f in document["findings"]] == ["warning"]
    assert ran.code == 1
    assert "<failure" in (tmp_path / "junit.xml").read_text()
