"""One workshop for all tests of a session: what was trained once is not trained again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """Faulty trainers, their twins, and one zygote for the ranks of all."""
    made = Workshop(tmp_path_factory.mktemp("workshop"))
    yield made
    made.close()
