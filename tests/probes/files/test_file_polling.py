"""Which looks at a file wait for it: read from the syntax around them."""

from __future__ import annotations

import ast
import sys
import textwrap
import warnings

import pytest

from ddpcheck.probes.files import file_polling

WAITS = [
    "while not os.path.exists(p): time.sleep(1)  # LOOK",
    "while not os.path.exists(p): pass  # LOOK",
    """
    def wait_for(path, seconds=60):
        for _ in range(seconds * 10):
            if os.path.exists(path):  # LOOK
                return
            time.sleep(0.1)
        raise TimeoutError(path)
    """,
    """
    while True:
        if os.path.exists(p):  # LOOK
            break
        stop.wait(1)
    """,
    """
    while True:
        found = there.exists()  # LOOK
        if not found:
            time.sleep(1)
            continue
        break
    """,
    """
    found = False
    while not found:
        found = exists(p)  # LOOK
        await asyncio.sleep(1)
    """,
    """
    while not all(os.path.exists(p) for p in paths):  # LOOK
        time.sleep(1)
    """,
    """
    while not (
        os.path.exists(p)  # LOOK
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(p)
    """,
]
HANDS_ON = ["def there(): return os.path.exists(p)  # LOOK", "wait_until(lambda: os.path.exists(p))  # LOOK"]
NEITHER = [
    "found = os.path.exists(p)  # LOOK: it is there while the job lasts",
    """
    for epoch in range(3):
        train()
        time.sleep(1)
        if os.path.exists(p):  # LOOK
            load(p)
    """,
    """
    while not os.path.exists(p):  # LOOK
        train()
    """,
    """
    for epoch in range(3):
        if not os.path.exists(p):  # LOOK
            time.sleep(1)
        load(p)
    """,
    """
    while steps():
        time.sleep(1)
    else:
        os.path.exists(p)  # LOOK
    """,
    """
    while True:
        def look():
            if os.path.exists(p):  # LOOK
                return 1
        time.sleep(1)
    """,
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(t, "waits") for t in WAITS] + [(t, "hands on") for t in HANDS_ON] + [(t, "neither") for t in NEITHER],
)
def test_what_waits(text, expected):
    """A loop that pauses, and ends by what was seen; a comment or another loop around it is none."""
    text = textwrap.dedent(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "LOOK" in one)
    if "await" in text:
        text = "async def f():\n" + textwrap.indent(text, "    ")
        line += 1
    assert file_polling.place_of(ast.parse(text), line, "exists") == expected


def exists(answers):
    """The function that is looked with: whether the line that calls it waits."""
    answers.append(file_polling.is_wait(sys._getframe(1), "exists"))
    return True


def wait_until(condition):
    while not condition():
        raise AssertionError


def test_answers_that_are_handed_on():
    """The loop stands in another function than the look."""
    found = []

    def there():
        return exists(found)

    while not there():
        pass
    wait_until(lambda: exists(found))
    there()
    exists(found)
    assert found == [True, True, False, False]


def test_a_source_that_cannot_be_read(tmp_path):
    """No syntax, no wait; and Python's warnings of odd strings are the program's own, once."""
    for text, place in (("while exists(:\n", "neither"), ("while not exists('\\d'): pass\n", "waits")):
        file = tmp_path / f"{place}.py"
        file.write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert file_polling._place(str(file), 1, "exists") == place
    assert file_polling._place("<string>", 1, "exists") == "neither"
