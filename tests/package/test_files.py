"""The files of the package: small ones, with a docstring, and what none of them does; and the public names."""

from __future__ import annotations

import ast
import re

import pytest

import ddpcheck
from tests.package.sources import FILES, tree


def test_the_public_names_are_there():
    """Every public name can be had from the package, and no other."""
    assert dir(ddpcheck) == sorted(ddpcheck.__all__)
    for name in ddpcheck.__all__:
        assert getattr(ddpcheck, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ddpcheck.nonsense


def test_files_stay_small():
    """A file that one cannot read in a sitting is two files."""
    assert [name for name, path in FILES.items() if len(path.read_text().splitlines()) > 800] == []


@pytest.mark.parametrize("words", [r"\b(pickle|marshal|torch)\.loads?\(", r"(?<![.\w])(eval|exec)\("])
def test_nothing_that_comes_from_elsewhere_is_executed(words):
    """Data of another process or file never becomes code."""
    assert [name for name, path in FILES.items() if re.search(words, path.read_text())] == []


def test_every_module_says_what_it_is():
    """Each file begins with a docstring."""
    assert [name for name, path in FILES.items() if not ast.get_docstring(tree(path))] == []
