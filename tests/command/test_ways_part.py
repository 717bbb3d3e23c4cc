"""Where ranks part, the command names the place in the source, and the one that calls; where they do not, nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import run

PROGRAM = Path(__file__).parents[2] / "fixtures" / "cases" / "run" / "ways_part.py"
LINES = PROGRAM.read_text().splitlines()


def numbers(text):
    return [number for number, line in enumerate(LINES, 1) if line.strip() == text]


LARGE = numbers("if is_large(loss):")
WAYS = [
    pytest.param("break", ("the `break` under `if is_large(loss):`", LARGE[0]), id="break"),
    pytest.param("return", ("the `return` under `if is_large(loss):`", LARGE[1]), id="return"),
    pytest.param("continue", ("the `continue` under `if is_large(loss):`", LARGE[2]), id="continue"),
    pytest.param("helper", ('`if WAY == "helper" and rank == 0:`', None), id="helper"),
    pytest.param("end", ('`if WAY == "end" and rank == 1:`', None), id="end"),
]


def told(tmp_path, forks, way):
    ran = run(tmp_path, "--nproc-per-node=2", PROGRAM, way, forks=forks)
    assert "ddpcheck itself" not in ran.err, ran.err
    return json.loads((tmp_path / "verdict.json").read_text())


@pytest.mark.parametrize(("way", "expected"), WAYS)
@pytest.mark.few(1)
def test_the_place_is_named(tmp_path, forks, way, expected):
    place, line = expected
    line = line or numbers(place.strip("`"))[0]
    document = told(tmp_path, forks, way)
    finding = document["findings"][0]
    assert finding["check"] in ("no-hang", "collective-order"), finding
    assert place in finding["cause"], finding["cause"]
    assert f"ways_part.py:{line})" in finding["cause"], finding["cause"]


def test_ranks_that_agree_are_let_be(tmp_path, forks):
    document = told(tmp_path, forks, "agreed")
    assert (document["verdict"], document["findings"]) == ("held", [])


@pytest.mark.long
def test_a_chain_leads_to_the_line(tmp_path, forks):
    """A helper's call names who has called it, and the texts of all lines."""
    finding = told(tmp_path, forks, "helper")["findings"][0]
    chain = [one["function"] for one in finding["chain"]]
    assert chain[-3:] == ["main", "validate", "reduce_mean"]
    assert finding["chain"][-1]["text"] == "dist.all_reduce(x)"
    assert {name: finding["chain"][-1][name] for name in ("file", "line", "function")} == finding["where"]
