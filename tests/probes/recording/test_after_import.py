"""Being told when the program has imported a module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddpcheck.probes.recording import patching
from ddpcheck.probes.recording.after_import import Finder, after_import
from ddpcheck.probes.recording.patching import once_imported

NAME = "imported_later"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Writes the module that is imported later; all is as before afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def write(text: str) -> None:
        (tmp_path / f"{NAME}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop(NAME, None)


def waiting() -> list[Finder]:
    return [one for one in sys.meta_path if isinstance(one, Finder) and one.name == NAME]


def test_several_tasks_for_one_module(write: Callable[[str], None]) -> None:
    """Each is done, once, in the order in which they were asked for; one finder waits for all."""
    write("value = 1")
    done: list[str] = []
    for task in ("first", "second"):
        after_import(NAME, lambda task=task: done.append(task))  # type: ignore[misc]
    assert len(waiting()) == 1
    assert done == []
    importlib.import_module(NAME)
    assert done == ["first", "second"]
    assert waiting() == []


def test_a_module_that_is_there_already(write: Callable[[str], None]) -> None:
    write("value = 1")
    importlib.import_module(NAME)
    done: list[str] = []
    after_import(NAME, lambda: done.append("now"))
    assert done == ["now"]
    assert waiting() == []


def test_a_task_that_fails_fails_neither_the_import_nor_the_next(
    write: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a fault of ours, and is written down as that."""
    write("value = 1")
    defects: list[Exception] = []
    done: list[str] = []
    monkeypatch.setattr(patching, "defect", defects.append)

    def failing() -> None:
        raise RuntimeError("no such name in this torch")

    once_imported(NAME, failing)
    once_imported(NAME, lambda: done.append("second"))
    assert importlib.import_module(NAME).value == 1
    assert [str(one) for one in defects] == ["no such name in this torch"]
    assert done == ["second"]


def test_an_import_that_fails_and_is_tried_again(write: Callable[[str], None]) -> None:
    """The program gets its own error; the task is done after the import that works."""
    write("raise ImportError('not yet')")
    done: list[str] = []
    after_import(NAME, lambda: done.append("now"))
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(NAME)
    assert done == []
    write("value = 22222")  # of another size: byte code goes by time and size
    assert importlib.import_module(NAME).value == 22222
    assert done == ["now"]
