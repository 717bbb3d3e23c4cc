"""What a session says at the end of an item, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddpcheck.plugin.ddp_item_run import DdpcheckWarning, Session, _called
from ddpcheck.vocabulary.model import Leftover


@pytest.fixture
def session():
    """A session that has a sentence to say."""
    made = Session.__new__(Session)
    made._said = ["first"]
    made.on_stop = []
    return made


class Item:
    """An item whose filters make an error of every warning."""

    config = SimpleNamespace()

    def __init__(self):
        self.warned = []

    def warn(self, warning):
        self.warned.append(str(warning))
        raise warning


def test_a_warning_that_is_an_error_is_one_items(session):
    """All that is said of an item fails it, and is not said again of the next."""
    record = SimpleNamespace(leftovers=(Leftover(kind="process", name="sleep", rank=1),), warnings=())
    item = Item()
    with pytest.raises(DdpcheckWarning, match=r"first\nrank 1 left a process running") as raised:
        session._issue(item, record)
    assert str(raised.value) == "\n".join(item.warned)
    session._issue(Item(), SimpleNamespace(leftovers=(), warnings=()))


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.exit.Exception])
def test_what_ends_a_session_in_a_teardown_ends_it(error):
    """Ctrl-C and pytest.exit are nobody's error."""

    def teardown():
        raise error("enough")

    with pytest.raises(error):
        _called(teardown)


def test_an_error_in_a_teardown_is_kept():
    """It is for the item's report."""

    def teardown():
        raise ValueError("disk full")

    call = _called(teardown)
    assert call.excinfo is not None
    assert call.excinfo.type is ValueError


def test_every_end_is_called(session):
    """Whatever another of them raises, and the launcher."""
    called = []

    def fail():
        called.append("launcher")
        raise OSError("no more")

    session.launcher = SimpleNamespace(stop=fail)
    session.on_stop = [lambda: called.append("a"), lambda: called.append("b")]
    with pytest.raises(OSError, match="no more"):
        session.stop()
    assert called == ["launcher", "a", "b"]
