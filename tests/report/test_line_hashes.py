"""GitHub's hash of a line."""

from __future__ import annotations

import pytest

from ddpcheck.report.line_hashes import line_hashes

GREETINGS = ["e9496ae3ebfced30:1", "fb7c023a8b9ccb3f:1", "ce8ba1a563dcdaca:1", "e20e36e16fcb0cc8:1"]
GREETINGS += ["b3edc88f2938467e:1", "c8e28b0b4002a3a0:1", "c129715d7a2bc9a3:1"]


@pytest.mark.parametrize(
    ("text", "hashes"),
    [
        ("", ["c129715d7a2bc9a3:1"]),
        (" a\nb\n  \t\tc\n d", ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]),
        (" hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End\n", GREETINGS),
        (" hello; \t\r\nworld!!!\r\n\r\n\r\n  \t\tGreetings\r\n End\r\n", GREETINGS),
        (" hello; \t\nworld!!!\r\r\r  \t\tGreetings\r End\r", GREETINGS),
        (
            "Lorem ipsum dolor sit amet.\n" * 10,
            [
                *(f"a7f2ff13bc495cf2:{number}" for number in range(1, 7)),
                *("a7f2ff1481e87703:1", "a9cf91f7bbf1862b:1", "55ec222b86bcae53:1", "cc97dc7b1d7d8f7b:1"),
                "c129715d7a2bc9a3:1",
            ],
        ),
    ],
    ids=["empty", "short", "newlines", "windows", "mixed", "repeated"],
)
def test_it_is_the_one_of_githubs_own_action(text, hashes):
    """The values are those that its upload action is tested with: another one would make it warn."""
    assert list(line_hashes(text).values()) == hashes


def test_it_moves_with_the_line():
    """Lines above do not matter, nor does white space; any character can be in the file."""
    code = "for x in batches:\n    loss = model(x)\n\U0001f600\udce9\n" + "pass\n" * 30
    later = line_hashes("import os\n\n" + code.replace("    ", "\t"))
    assert [later[number + 2] for number in (1, 2, 3)] == [line_hashes(code)[number] for number in (1, 2, 3)]
