"""torchrun's options, read from its source: as torchrun's own parser has them, or not at all."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from torch.distributed import run

from ddpcheck.run import torchrun_options
from ddpcheck.run.torchrun_options import Unreadable

HEAD = "def get_args_parser():\n    parser = ArgumentParser(description='d')\n"
TAIL = "".join(
    f"    parser.add_argument({name!r}, action=env, type=str, default='1')\n"
    for name in ("--nnodes", "--nproc-per-node")
) + (
    "    parser.add_argument('training_script', type=str)\n"
    "    parser.add_argument('training_script_args', nargs=REMAINDER)\n"
)


def own(text: str = "") -> torchrun_options.Read:
    """What is read of a torchrun with one option more."""
    return torchrun_options.read(HEAD + text + TAIL)


def test_this_torch_is_read():
    """Every option of the installed torchrun, with its names, its kind and what it is without being given."""
    text = Path(run.__file__).read_text()
    read = torchrun_options.read(text)
    theirs = run.get_args_parser()
    for one in theirs._actions:
        (same,) = [other for other in read._actions if other.dest == one.dest]
        assert (same.option_strings, same.default, same.nargs) == (one.option_strings, one.default, one.nargs), one
        if one.dest not in read.in_part:
            assert (same.type, same.choices) == (one.type, one.choices), one
    assert [one.dest for one in read._actions] == [one.dest for one in theirs._actions]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nproc-per-node", "4", "train.py", "--lr", "1"],
        ["--nnodes=1:2", "--rdzv_endpoint", "a:1", "-m", "train", "-x"],
        ["--standalone", "--max-restarts", "3", "--monitor-interv", "0.5", "train.py"],
        ["--no-python", "bash", "train.sh"],
    ],
)
def test_it_reads_a_command_line_as_torchrun_does(monkeypatch, arguments):
    """The same values, with variables of the environment among them."""
    monkeypatch.setenv("PET_RDZV_ID", "mine")
    monkeypatch.setenv("PET_RUN_PATH", "0")
    text = Path(run.__file__).read_text()
    theirs = vars(run.get_args_parser().parse_args(arguments))
    assert vars(torchrun_options.read(text).parse_args(arguments)) == theirs
    assert theirs["rdzv_id"] == "mine"


def test_what_is_worked_out_is_known_to_be():
    """Such as which values an option may have: torchrun's own parser is asked for these."""
    read = own("    parser.add_argument('--new', choices=[m.value for m in Mode])\n")
    assert read.in_part == {"new"}
    assert own("    parser.add_argument('--new', type=listed, default=[])\n").in_part == {"new"}
    assert own().in_part == set()


@pytest.mark.parametrize(
    "text",
    [
        "    parser.add_argument(NAME)\n",
        "    parser.add_argument('--new', action=Other())\n",
        "    parser.add_argument('--new', nargs=how_many())\n",
        "    parser.add_argument('--new', deprecated=True)\n",
        "    group = parser.add_mutually_exclusive_group()\n",
        "    parser = ArgumentParser(prefix_chars='+')\n",
    ],
)
def test_another_torchrun_is_not_misread(text):
    """What is not understood makes all of it unread, and torchrun itself is asked."""
    with pytest.raises(Unreadable):
        own(text)


def test_a_torchrun_without_its_function_is_not_read():
    """As one that builds its parser elsewhere."""
    with pytest.raises(Unreadable):
        torchrun_options.read("from elsewhere import get_args_parser\n")
    with pytest.raises(Unreadable):
        torchrun_options.read(HEAD)


def test_torchrun_is_asked_where_it_cannot_be_read(monkeypatch):
    """The parser is its own then."""
    monkeypatch.setattr(torchrun_options, "_MODULE", "not.imported")
    assert isinstance(torchrun_options.parser(), torchrun_options.Read)
    monkeypatch.setattr(torchrun_options, "source", lambda: "def")
    parser = torchrun_options.parser()
    assert type(parser) is argparse.ArgumentParser
    assert "--nproc-per-node" in parser.format_help()
