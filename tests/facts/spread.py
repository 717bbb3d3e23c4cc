"""The moments of programs that were run, and what their steps were made of."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from ddpcheck.evidence import Defect
from ddpcheck.facts import moments
from ddpcheck.facts.moments import Moments, Value, Window
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from tests.corpus.forked_run import ENDED, Ended

RECORD = """
import sys
from pathlib import Path
from tests.corpus import forked
folder, ranks, program, *arguments = sys.argv[1:]
forked.record(Path(folder), Path(program), *arguments, ranks=int(ranks))
"""
PROGRAM = Path(__file__).parents[2] / "fixtures" / "facts" / "one_training.py"


def run(*arguments: str, ranks: int = 2, program: Path = PROGRAM) -> list[Moments]:
    """The moments of each rank, in order."""
    with tempfile.TemporaryDirectory(prefix="moments-") as folder:
        # Elsewhere: it puts probes into the process that its ranks are forked from.
        command = [sys.executable, "-c", RECORD, folder, str(ranks), str(program), *arguments]
        subprocess.run(command, check=True, cwd=PROGRAM.parents[2])
        ended = msgspec.json.decode((Path(folder) / ENDED).read_bytes(), type=Ended)
        assert [code for _, _, code in ended.ends] == [0] * ranks, ended.output
        evidence = Folder(Path(folder))
        evidence.read()
        (world,) = worlds(evidence.processes.values())
        assert not [record.text for rank in world for record in rank.process.of(Defect)]
        return [moments.of(rank) for rank in world]


def by_path(rank: Moments, values: dict[int, Value]) -> dict[str, np.ndarray]:
    """The sketches of a moment by the path of their tensor."""
    return {rank.pieces[piece].path: value.sketch for piece, value in values.items()}


def holders(ranks: list[Moments]) -> dict[str, list[int]]:
    """By path, ranks that have all pieces of the tensor between them, each once."""
    found: dict[str, list[int]] = {}
    met: set[object] = set()
    for number, rank in enumerate(ranks):
        for piece in rank.pieces.values():
            where = piece.path, piece.offset, piece.sizes
            if where not in met and all(piece.sizes):
                met.add(where)
                found.setdefault(piece.path, []).append(number)
    return found


def whole(ranks: list[Moments], window: int, at: str) -> dict[str, np.ndarray]:
    """The sketches of whole tensors at a moment of a window: those of the pieces added up."""
    each = [by_path(rank, getattr(_window(rank, window), at)) for rank in ranks]
    return {
        path: np.sum([each[n][path] for n in members], axis=0)
        for path, members in holders(ranks).items()
        if all(path in each[n] for n in members)
    }


def contributed(ranks: list[Moments], window: int, team: int = 1) -> dict[str, dict[tuple[int, int], np.ndarray]]:
    """By path, what each micro-batch of each team of ranks has contributed, whose parts of tensors add up."""
    found: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    met: set[object] = set()
    for number, rank in enumerate(ranks):
        for piece, each in _window(rank, window).contributions.items():
            its = rank.pieces[piece]
            for m, one in enumerate(each):
                key = number // team, m
                part = (one.layout.offset, one.layout.local) if one.layout is not None else its.offset
                if (its.path, key, part) not in met:
                    met.add((its.path, key, part))
                    columns = found.setdefault(its.path, {})
                    columns[key] = columns.get(key, 0) + one.sketch
    return found


def _window(rank: Moments, number: int) -> Window:
    (windows,) = rank.windows.values()
    return windows[number]


def solved(ranks: list[Moments], window: int, team: int = 1) -> tuple[dict[tuple[int, int], float], float]:
    """The coefficient of each contribution in what the step was made on, and the residual, as a part of that."""
    gradients, each = whole(ranks, window, "gradients"), contributed(ranks, window, team)
    keys = sorted({key for columns in each.values() for key in columns})
    assert gradients.keys() == each.keys()
    y = np.concatenate(list(gradients.values()))
    nothing = np.zeros(8)
    matrix = np.stack([np.concatenate([each[path].get(key, nothing) for path in gradients]) for key in keys], 1)
    found, *_ = np.linalg.lstsq(matrix, y, rcond=None)
    return dict(zip(keys, found.tolist(), strict=True)), float(np.linalg.norm(matrix @ found - y) / np.linalg.norm(y))
