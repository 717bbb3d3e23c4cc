"""By which numbers some sketches make another one, within rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts.sketches import Numbers

APART = 1e-4
"""The smallest singular value of columns that can be told apart."""
MOST = 4
"""Unknowns that one tensor's sketch can tell."""


def sizes(rows: Numbers) -> Numbers:
    """Of each row."""
    found: Numbers = np.sqrt(np.einsum("tk,tk->t", rows, rows))
    return found


def fit(wanted: Numbers, columns: Numbers) -> tuple[Numbers, Numbers]:
    """By tensor, the numbers by which the columns make it, and how far they are off; columns are alike: none fits."""
    each = np.sqrt(np.einsum("ctk,ctk->ct", columns, columns))
    unit = columns / np.where(each > 0, each, 1)[..., None]
    gram = np.einsum("atk,btk->tab", unit, unit)
    right = np.einsum("atk,tk->ta", unit, wanted)
    good = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(right).all(axis=1)
    gram[~good], right[~good] = np.eye(len(columns)), 0
    smallest = np.linalg.eigvalsh(gram)[:, 0]
    found = np.einsum("tab,tb->ta", np.linalg.pinv(gram, hermitian=True), right)
    off = sizes(np.einsum("ta,atk->tk", found, unit) - wanted) / sizes(wanted)
    off[(smallest < APART**2) | ~good] = np.inf
    return (found / np.where(each > 0, each, 1).T).T, off


def shares(
    wanted: Numbers, columns: Numbers, limit: Numbers, equations: NDArray[np.int64]
) -> Iterator[tuple[int, Numbers, float]]:
    """By what the columns make each tensor: each by itself where it has numbers enough, or several treated alike."""
    left = np.arange(len(wanted))
    if len(columns) <= MOST:
        factors, off = fit(wanted, columns)
        fits = (off < limit) & (equations > len(columns))
        for n in np.flatnonzero(fits):
            yield int(n), factors[:, n], float(off[n])
        left = left[~fits]
    while len(left):
        these, apart = left, np.zeros(0, dtype=int)
        while equations[these].sum() >= len(columns) + 2:
            found = _fit_alike(wanted[these], columns[:, these])
            if found is None:
                return
            factors, off = found
            if (off < limit[these]).all():
                yield from ((int(n), factors, float(of)) for n, of in zip(these, off, strict=True))
                break
            worst = np.argsort(off)[max(1, len(these) // 2) :]
            if not len(worst):
                return
            apart = np.concatenate([apart, these[worst]])
            these = np.delete(these, worst)
        else:
            return
        left = apart


def _fit_alike(wanted: Numbers, columns: Numbers) -> tuple[Numbers, Numbers] | None:
    """The numbers by which the columns make all of these, and how far each is off; None where several would."""
    size = sizes(wanted)[:, None]
    y, x = (wanted / size).reshape(-1), (columns / size).reshape(len(columns), -1)
    each = np.linalg.norm(x, axis=1)
    there = each > 0
    if not np.isfinite(x).all() or not there.any():
        return None
    found, _, _, singular = np.linalg.lstsq((x[there] / each[there, None]).T, y, rcond=1e-9)
    if singular[-1] < APART:
        return None
    factors = np.zeros(len(columns))
    factors[there] = found / each[there]
    return factors, sizes((factors @ x - y).reshape(len(wanted), NUMBERS))
