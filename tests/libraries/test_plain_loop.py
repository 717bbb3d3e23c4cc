"""The suite on a plain torch loop: all of it holds."""

from __future__ import annotations

from typing import Any

import ddpcheck
from fixtures.trainers.plain import fit


@ddpcheck.parametrize_with_checks(fit, losses=("samples", "tokens", "pairs"))
def test_trainer(check: Any) -> None:
    check()
