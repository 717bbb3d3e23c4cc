"""What is taken for a script: all that an interpreter runs, and no more of it is read than it can spare."""

from __future__ import annotations

import os
import py_compile
import warnings
import zipfile
from pathlib import Path

import pytest

from ddpcheck.run import options

SOURCE = "print('ran')\n"


def zipped(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("__main__.py", SOURCE)


def executable(file):
    zipped(file)
    file.write_bytes(b"#!/usr/bin/env python\n" + file.read_bytes())


def compiled(file):
    Path("source.py").write_text(SOURCE)
    py_compile.compile("source.py", str(file))


def folder(file):
    file.mkdir()
    compiled(file / "__main__.pyc")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("app.pex", zipped),
        ("app", executable),
        ("compiled", compiled),
        ("folder", folder),
        ("pipe", os.mkfifo),
        ("latin.py", lambda file: file.write_bytes(b"# coding: latin-1\ncaf\xe9 = 1\n")),
        ("-", lambda file: None),
        (os.devnull, lambda file: None),
    ],
)
@pytest.mark.parametrize("launched", [("--standalone", "--nproc-per-node", "1"), ()])
def test_what_an_interpreter_runs_is_a_script(tmp_path, monkeypatch, name, make, launched):
    """Archives with any name, byte code, and what can be read only once: nothing is read of a pipe."""
    monkeypatch.chdir(tmp_path)
    make(Path(name))
    found = options.parse([*launched, name, "an argument"])
    assert (found.script, found.arguments) == (name, ("an argument",))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [("notes.txt", b"these are", "no Python"), ("null.py", b"a = 1\0", "no Python"), ("app.pex", b"PK 1", "no Py")],
)
def test_what_none_runs_is_refused(tmp_path, monkeypatch, name, content, why):
    """Before anything is started."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(options.WrongUsage, match=why):
        options.parse([name])


def test_warnings_of_a_script_are_given_by_its_interpreter(tmp_path):
    """A script that is looked at gives none."""
    script = tmp_path / "train.py"
    script.write_text("x = '\\d'\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert options.parse([str(script)]).script == str(script)
