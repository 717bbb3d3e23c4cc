"""What is to be run: a script for an interpreter, a module, or a command that starts interpreters itself."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import sys
import tokenize
import warnings
import zipfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Literal

Kind = Literal["script", "module", "command"]

TORCHRUN = "torch.distributed.run"
_ARCHIVES = (".zip", ".pyz", ".pyc")
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish"}


class NotRunnable(Exception):
    """Nothing can run it; the text is one sentence that says why, and what to do."""


def kind_of(name: str, module: bool, for_ranks: bool) -> Kind:
    """What a name stands for; raises NotRunnable.

    A file that Python can run is a script, even where there is a command of
    its name; ``for_ranks``: torchrun is to start it, which starts nothing else.
    """
    if module:
        _see_module(name)
        return "module"
    why = _not_python(name)
    if why is None:
        return "script"
    if shutil.which(name) is None:  # neither on PATH, nor an executable file with a path
        raise NotRunnable(why if Path(name).exists() else _nowhere(name))
    if for_ranks:
        raise NotRunnable(
            f"{name} is a command, not a script of Python: without torchrun's options it is run as it is and followed, "
            "and with --no-python each rank runs it"
        )
    return "command"


def is_torchrun(name: str, arguments: Sequence[str], module: bool) -> int | None:
    """How many of the arguments say that torchrun of this environment is to be run; None where it is not."""
    if module:
        return 0 if name == TORCHRUN else None
    if Path(name).exists() and "/" not in name:
        return None  # a script of this name, perhaps
    if Path(name).name == "torchrun" and (_is_ours(name) or shutil.which(name) is None):
        return 0
    return 2 if list(arguments[:2]) == ["-m", TORCHRUN] and _is_ours(name) and "python" in Path(name).name else None


def _is_ours(command: str) -> bool:
    """Whether a command belongs to the environment of this interpreter."""
    found = shutil.which(command)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent


def _nowhere(name: str) -> str:
    """One line for what is neither a file nor a command."""
    if name.endswith((".py", *_ARCHIVES)) or "/" in name:
        return f"there is no script {name}"
    return (
        f"there is no script {name}, and no command {name} on PATH: name a file of Python, -m and a module, or a "
        "command such as torchrun, accelerate launch or bash train.sh"
    )


# --- scripts


def _not_python(script: str) -> str | None:
    """Why no interpreter can run it; None where one can, or where only it can tell."""
    path = Path(script)
    if script == "-" or (path.is_dir() and any((path / f"__main__.{kind}").exists() for kind in ("py", "pyc"))):
        return None
    if not path.exists():
        return f"there is no script {script}"
    if path.is_dir():
        return f"{script} is a folder, not a script"
    if path.suffix in _ARCHIVES or not path.is_file():  # a pipe, say
        return None
    try:
        with open(path, "rb") as opened:
            first = opened.readline(256)
            opened.seek(0)
            if zipfile.is_zipfile(path) or opened.read(len(MAGIC_NUMBER)) == MAGIC_NUMBER:
                return None
        shell = _shell_of(first)
        if shell:
            return f"{script} is a script of {shell}, and not executable: ddpcheck run {shell} {script}"
        with tokenize.open(path) as source:
            text = source.read()
        with warnings.catch_warnings():  # the script's own interpreter gives them
            warnings.simplefilter("ignore")
            ast.parse(text, str(path))
    except SyntaxError as error:
        if path.suffix == ".sh":
            return f"{script} is no Python: ddpcheck run bash {script}"
        return f"{script} is no Python that {sys.executable} can run: line {error.lineno}: {error.msg}"
    except (UnicodeDecodeError, ValueError) as error:
        return f"{script} is no Python: {error}"
    except OSError as error:
        return f"{script} cannot be read: {error.strerror}"
    return None


def _shell_of(first: bytes) -> str:
    """The shell that the first line of a file names; empty where it names none."""
    if not first.startswith(b"#!"):
        return ""
    words = first[2:].decode(errors="replace").split()
    names = [Path(word).name for word in words[:3]]
    return next((name for name in names if name in _SHELLS), "")


# --- modules


def _see_module(name: str) -> None:
    """Look for a module without importing anything: its packages are for the ranks to import."""
    path: Sequence[str] | None = None
    known = ""
    for part in name.split("."):
        known += part
        found = _find(known, path)
        if found is None:
            raise NotRunnable(f"there is no module {known}" + (f", and so no {name}" if known != name else ""))
        path = found.submodule_search_locations if found.submodule_search_locations is not None else ()
        known += "."
    if path and _find(f"{name}.__main__", path) is None:
        raise NotRunnable(f"{name} is a package without a __main__, which cannot be run; name a module in it")


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The first finder's answer, with the working directory among the places to look, as in a rank."""
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            if (found := finder.find_spec(name, path)) is not None:
                return found
    return PathFinder.find_spec(name, [os.getcwd()]) if path is None else None
