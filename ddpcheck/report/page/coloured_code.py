"""Lines of code as HTML, with what their words are to Python in classes that the style sheet colours."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from ddpcheck.report.page.safe_text import brief


def coloured(lines: Sequence[str], most: int) -> list[Markup]:
    """Each line by itself; of a very long one the first ``most`` characters."""
    texts = [brief(line, most).replace("\n", " ") for line in lines]
    html = highlight("\n".join(texts), PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))
    found = [Markup(line) for line in html.split("\n")]
    return found[: len(texts)] if len(found) >= len(texts) else [escape(text) for text in texts]
