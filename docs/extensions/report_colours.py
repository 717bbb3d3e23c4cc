"""What ddpcheck prints is shown in colours: blocks of the language ``report``, and plain ones that have its words."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Generic, Keyword, Name, Text
from sphinx.application import Sphinx


class ReportLexer(RegexLexer):
    """Verdicts, findings, and the words before their parts."""

    name = "ddpcheck's report"
    aliases: ClassVar = ["report"]
    flags = re.MULTILINE
    tokens: ClassVar = {
        "root": [
            (r"^(VIOLATED|FAILED|HUNG)\b", Generic.Error),
            (r"^(INTERRUPTED|NOTHING CHECKED)\b", Keyword),
            (r"^HELD\b", Generic.Inserted),
            (r"^(\d+\. )(error|warning)(  )([\w/-]+)", bygroups(Text, Generic.Error, Text, Generic.Strong)),
            (r"^([\w-]+)( violated)(: )", bygroups(Generic.Strong, Generic.Error, Text)),
            (r"^([\w-]+)( at risk)(: )", bygroups(Generic.Strong, Keyword, Text)),
            (r"^(E +)(ddpcheck\.\w+)(: )", bygroups(Text, Generic.Error, Text)),
            (r"^>.*$", Generic.Strong),
            (r"^ +> +\d+ \|.*$", Generic.Strong),
            (r"^ +\d+ \|.*$", Comment),
            (r"^((?:E)? +)(expected|found|cause|where|see also|breaks)(?=  )", bygroups(Text, Name.Attribute)),
            (r"^((?:E)? +)(fix)(  .*(?:\n {12,}\S.*)*)", bygroups(Text, Name.Attribute, Generic.Inserted)),
            (r"^(checks|not checked|notes)$", Generic.Strong),
            (r"\b(violated)(?=  )", Generic.Error),
            (r"\b(held)(?=  )", Generic.Inserted),
            (r"\bat risk(?=  )", Keyword),
            (r"^ *…$", Comment),
            (r"[^\n\S]+|\w+|[^\w\s]|\n", Text),
        ]
    }


FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = re.compile(
    r"^(VIOLATED|HELD|FAILED|HUNG)  |^(E +| +)(expected|found|cause)  |^invariants$|held  at risk", re.MULTILINE
)


def _named(app: Sphinx, name: str, source: list[str]) -> None:
    def with_language(block: re.Match[str]) -> str:
        return f"```report\n{block[2]}```" if not block[1] and OURS.search(block[2]) else block[0]

    source[0] = FENCE.sub(with_language, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_lexer("report", ReportLexer)
    app.connect("source-read", _named)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
