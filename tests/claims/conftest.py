"""What tests of claims run on: scripts in ranks that are watched and judged as ``ddpcheck run`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.claims.watched import HEAD, Seen
from tests.corpus.asking import asking


@pytest.fixture(scope="session")
def answers() -> Iterator[Callable[..., str]]:
    """One process for all scripts of a session, which forks their ranks."""
    with asking() as ask:
        yield ask


@pytest.fixture
def watch(answers: Callable[..., str], tmp_path: Path) -> Callable[..., Seen]:
    """Run a body of statements as a script, in two ranks, and return what was seen of it."""

    def run(body: str, *arguments: str) -> Seen:
        path = tmp_path / "train.py"
        path.write_text(HEAD + dedent(body))
        return Seen(path, json.loads(answers(path, *arguments)))

    return run
