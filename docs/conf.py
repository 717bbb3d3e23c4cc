"""The site: Sphinx with furo, from the Markdown of this folder; ``nox -s docs`` builds it, and warnings are errors.

Why these: Sphinx, furo and the parser of Markdown have releases for today's Pythons, links between pages and headings
are checked, and what a page loads lies beside it, so that the site is built and read without network. MkDocs has had no
release since 2024, and the makers of its theme Material move on to a builder of their own, which is young.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

project = "ddpcheck"
author = "the authors of ddpcheck"
release = version = metadata.version("ddpcheck")

extensions = [
    "myst_parser",
    "sphinx_design",
    "extensions.check_pages",
    "extensions.option_tables",
    "extensions.file_links",
    "extensions.optional_pages",
    "extensions.page_comments",
    "extensions.report_colours",
]
exclude_patterns = ["extensions", "_build"]

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = "ddpcheck"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("copy_code.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5ed3a4", "color-brand-content": "#5ed3a4"},
    "top_of_page_buttons": [],
}
pygments_style = "tango"
pygments_dark_style = "github-dark"
highlight_language = "text"
