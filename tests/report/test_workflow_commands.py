"""Lines for the runner of GitHub Actions, and lines that it must not take for its own."""

from __future__ import annotations

import io
import re

import pytest

from ddpcheck.report.workflow_commands import Harmless, command, harmless

COMMANDS = {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "stop-commands", "set-output"}


def parsed(line):
    """What the runner makes of a line: the name, the properties and the text; None for one that is no command."""
    stripped = line.strip("\u200b\ufeff").lstrip().lstrip("\u200b\ufeff")
    new = re.match(r"::(.*?)::(.*)", stripped, re.DOTALL)
    old = re.search(r"##\[([^\]]*)\](.*)", line, re.DOTALL)
    for found, separator in ((new, ","), (old, ";")):
        if found is None or found[1].partition(" ")[0].lower() not in COMMANDS:
            continue
        name, _, given = found[1].partition(" ")
        pairs = [pair.partition("=") for pair in given.strip().split(separator) if "=" in pair]
        return name, {key: _read(value) for key, _, value in pairs}, _read(found[2])
    return None


def _read(text):
    for escape, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, meant)
    return text


@pytest.mark.parametrize("text", ["plain", "a: b, c=d", "50%", "%0A is not a new line", "two\nlines", "::error::x", ""])
def test_a_command_says_what_it_was_given(text):
    """Whatever is in it, it is one line, and read as it was meant."""
    line = command("error", text, file=f"{text}.py" if text else "", line=3)
    assert "\n" not in line
    properties = {"file": f"{text}.py", "line": "3"} if text else {"line": "3"}
    assert parsed(line) == ("error", properties, text)


def test_long_texts_are_cut_to_what_the_runner_keeps():
    """Else it cuts them itself, in the midst of an escape perhaps."""
    _, properties, text = parsed(command("warning", "x" * 5000, title="%" * 300))
    assert (len(text), len(properties["title"])) == (4096, 255)
    assert text.endswith("…")


def test_what_is_no_text_becomes_text():
    """Control characters and bytes that are not UTF-8."""
    line = command("error", "a\x1b[0m\udce9\x00")
    assert parsed(line)[2] == r"a\x1b[0m\xdce9\x00"
    line.encode()


@pytest.mark.parametrize(
    "text",
    [
        "::error::x",
        "   ::add-mask::x",
        "\t\u00a0::error file=a::x",
        "first\n::stop-commands::t",
        "anywhere ##[error]x",
        "##[group]x",
        "\u200b::error::x",
        ":\u200b:error::x",
        "\ufeff ::error::x",
    ],
    ids=ascii,
)
def test_no_line_of_a_text_is_a_command(text):
    """And each can still be read."""
    assert any(parsed(line) for line in text.splitlines()) or "\u200b" in text
    assert [parsed(line) for line in harmless(text).splitlines()] == [None] * len(text.splitlines())
    assert not re.search(r"(?m)^[^\\\w]*:[\u200b]*:", harmless(text))


@pytest.mark.parametrize("text", ["x[::2]", "a::b", "> 5 | ::error", "std::vector", "# [x]", "  : :", "text\n\n"])
def test_other_lines_are_left_as_they_are(text):
    """Colons in the midst of a line mean nothing to the runner."""
    assert harmless(text) == text


def test_a_line_that_comes_in_parts_is_seen_whole():
    """Whatever is flushed in between."""
    out = io.StringIO()
    stream = Harmless(out)
    for part in ("  ", ":", ":error::a\nb ", "::warning", "::c\n", ":"):
        stream.write(part)
        stream.flush()
    stream.write(":error::d\n")
    assert [parsed(line) for line in out.getvalue().splitlines()] == [None, None, None]
    assert out.getvalue().replace("\\", "") == "  ::error::a\nb ::warning::c\n::error::d\n"
