"""What a program does with a wrapped module besides training it, and how deep modules may be nested."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ddpcheck.probes.ddp import conversions
from ddpcheck.probes.recording import patching


def test_the_module_is_found_in_the_programs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a subclass's own __getattr__, too; by what an object has itself; and the class has none."""

    class Base:
        """A stand-in for DDP, which finds its module as torch does."""

        def __init__(self) -> None:
            self.modules = {"module": "wrapped"}

        def __getattr__(self, name: str) -> str:
            if name in self.modules:
                return self.modules[name]
            raise AttributeError(f"no attribute {name!r}")

    class Unwraps(Base):
        def __getattr__(self, name: str) -> str:
            found = super().__getattr__(name)
            return "past the wrapper" if name == "module" else found

    asking: list[str] = []
    monkeypatch.setattr(conversions.user_lines, "is_users", lambda code: asking.append(code.co_name))
    conversions._watch_module(Base, own={})
    one: Any = Base()
    assert one.module == "wrapped"
    assert Unwraps().module == "past the wrapper"  # type: ignore[attr-defined]
    assert asking == ["test_the_module_is_found_in_the_programs_way"] * 2
    assert not hasattr(Base, "module")
    one.modules.clear()
    with pytest.raises(AttributeError, match="no attribute 'module'"):
        _ = one.module
    one.module = "its own"
    assert one.module == "its own"


def test_what_is_looked_at_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails costs the call nothing; and each level of a recursion has one frame more."""

    class Tree:
        def deep(self, levels: int) -> int:
            return self.deep(levels - 1) if levels else len(_stack())

    def _stack() -> list[Any]:
        frame, found = sys._getframe(), []
        while frame.f_back is not None:
            found.append(frame.f_code)
            frame = frame.f_back
        return found

    before = Tree().deep(50)
    seen = []
    patching.beforehand(Tree, "deep", lambda self, levels: seen.append(1 // levels))
    assert Tree().deep(50) == before + 51
    assert len(seen) == 50


def test_what_is_looked_at_afterwards() -> None:
    """A look that fails costs the call nothing, and none follows a call that fails."""

    class Counter:
        number = 0

        def add(self, more: int) -> int:
            self.number += 1 // more
            return self.number

    seen: list[float] = []
    patching.afterwards(Counter, "add", lambda it: seen.append(1 / (it.number - 2)), unless=lambda it: it.number > 3)
    one = Counter()
    assert [one.add(1) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert seen == [-1.0, 1.0]
    with pytest.raises(ZeroDivisionError):
        one.add(0)
    assert len(seen) == 2


DEEP = """
import sys, torch
if "watched" in sys.argv:
    from ddpcheck.probes import all_probes as watching
    watching.patch(["forwards"])

class Tree(torch.nn.Module):
    def forward(self, levels):
        return self(levels - 1) if levels else depth()

def depth():
    frame, found = sys._getframe(), 0
    while frame is not None:
        frame, found = frame.f_back, found + 1
    return found

print(Tree()(50) - Tree()(1))
"""


def test_a_module_that_calls_itself() -> None:
    """It comes as deep as it does without us."""
    told = [
        subprocess.run([sys.executable, "-c", DEEP, *more], capture_output=True, text=True, check=True).stdout
        for more in ((), ("watched",))
    ]
    assert told[0] == told[1]
