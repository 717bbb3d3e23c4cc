"""The user's session as plain data for the ranks' sessions."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from ddpcheck.ranks.session_settings import options_for_ranks, workerinput_for_ranks


def options(**said):
    """The options for ranks, where the user's session has ``said`` these."""
    return options_for_ranks(SimpleNamespace(option=SimpleNamespace(**said), rootpath=Path("a/b"), inipath=None))


OF_ALL = {"plugins", "rootdir", "inifilename"}
"""Options that every session in a rank is given."""


class Hook:
    """pytest-xdist's hook for nodes, with these implementations."""

    def __init__(self, *functions):
        self.functions = functions

    def get_hookimpls(self):
        return [SimpleNamespace(function=function) for function in self.functions]


def told(*functions, hook=True, **config):
    configure = {"pytest_configure_node": Hook(*functions)} if hook else {}
    return workerinput_for_ranks(SimpleNamespace(hook=SimpleNamespace(**configure), **config))


def test_plain_options_are_the_same_in_a_rank():
    """Numbers, text, lists and mappings of the user's session arrive unchanged; paths arrive as text."""
    said = {"verbose": 1, "tbstyle": "short", "markers": None, "ratio": 0.5, "names": ("a", "b"), "table": {"a": [1]}}
    found = options(rootdir=None, **said)
    assert {name: found[name] for name in said} == said | {"names": ["a", "b"]}
    assert found["rootdir"] == str(Path("a/b"))


def test_what_is_no_plain_data_stays_behind():
    """An option that holds an object, anywhere in it, does not travel."""
    found = options(a=object(), b=[1, object()], c={"x": object()}, d={1: 2}, e=b"bytes", f={"x": 1})
    assert set(found) == {"f", *OF_ALL}


def test_the_terminal_stays_with_the_user():
    """A rank's session writes nothing to the terminal, whatever plugins the user chose."""
    silent = ["no:terminal", "no:sugar"]
    assert options()["plugins"] == silent
    assert options(plugins=None)["plugins"] == silent
    assert options(plugins=["no:cacheprovider", "mine"])["plugins"] == ["no:cacheprovider", "mine", *silent]


OF_THE_USER_ALONE = {
    "keyword": ("x", ""),
    "markexpr": ("slow", ""),
    "deselect": (["a"], None),
    "lf": (True, False),
    "failedfirst": (True, False),
    "newfirst": (True, False),
    "stepwise": (True, False),
    "stepwise_skip": (True, False),
    "maxfail": (1, 0),
    "pyargs": (True, False),
    "collectonly": (True, False),
    "usepdb": (True, False),
    "capture": ("fd", "no"),
    "xmlpath": ("a.xml", None),
    "log_file": ("a.log", os.devnull),
    "numprocesses": (4, None),
    "dist": ("load", "no"),
    "distload": (True, False),
    "tx": (["4*popen"], []),
    "cov_source": (["package"], []),
    "no_cov": (False, True),
}


@pytest.mark.parametrize("name", OF_THE_USER_ALONE)
def test_what_only_one_session_may_do_is_switched_off(name):
    """Selecting, distributing, measuring, debugging and writing reports are the user's session's alone."""
    said, switched_off = OF_THE_USER_ALONE[name]
    assert options(**{name: said})[name] == switched_off


def test_options_that_nobody_has_are_not_invented():
    """What is switched off is only what there is: plugins look for their options by name."""
    assert set(options(verbose=0)) == {"verbose", *OF_ALL}


def test_the_users_session_keeps_its_options():
    """Preparing options for ranks changes nothing for the user."""
    option = SimpleNamespace(keyword="x", plugins=["mine"], capture="fd")
    options_for_ranks(SimpleNamespace(option=option, rootpath=Path("a"), inipath=None))
    assert vars(option) == {"keyword": "x", "plugins": ["mine"], "capture": "fd"}


def test_the_options_of_this_session_can_be_sent(pytestconfig):
    """The options of a real session, with the plugins that are installed, are plain data."""
    found = options_for_ranks(pytestconfig)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found
    assert found["capture"] == "no"
    assert "no:terminal" in found["plugins"]


def test_a_session_that_is_not_distributed_is_the_master():
    """Without pytest-xdist a rank is told what a session of its own would be."""
    found = told(hook=False)
    assert (found["workerid"], found["workercount"]) == ("master", 1)
    assert found["testrunuid"] != told(hook=False)["testrunuid"]


def test_plugins_tell_ranks_what_they_tell_workers():
    """What a plugin would tell a worker of pytest-xdist, a rank is told, too."""

    def configure_node(node):
        node.workerinput["seed"] = 7
        node.workerinput["folder"] = Path("a")
        node.workerinput["connection"] = object()
        node.workerinput["gateway"] = node.gateway.id

    found = told(configure_node)
    assert (found["seed"], found["folder"], found["gateway"]) == (7, "a", "master")
    assert "connection" not in found


def test_a_plugin_that_expects_a_distributed_session_does_no_harm():
    """An implementation that fails here keeps no other from being heard."""

    def broken(node):
        raise KeyError("no such worker")

    found = told(broken, lambda node: node.workerinput.update(seed=7))
    assert found["seed"] == 7


def test_a_workers_own_input_goes_on_to_its_ranks():
    """In a worker of pytest-xdist, ranks are told what the worker was told, and plugins are not asked again."""

    def asked(node):
        raise AssertionError("a plugin was asked")

    found = told(asked, workerinput={"workerid": "gw1", "seed": 3, "object": object()})
    assert found == {"workerid": "gw1", "seed": 3}
