"""The explicit examples of a property: they cross to the ranks by their numbers.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import inspect
from typing import Any


def explicit_examples(function: Any) -> list[dict[str, Any]]:
    """The arguments of each @example, by name."""
    found = []
    names = [
        name
        for name, parameter in inspect.signature(function.hypothesis.inner_test).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    for example in getattr(function, "hypothesis_explicit_examples", ()):
        positional = dict(zip(names[-len(example.args) :], example.args, strict=False)) if example.args else {}
        found.append(positional | dict(example.kwargs))
    return found
