"""Pages over a store and its traces, and the page of a single run. Needs the extra `cli`.

The server is in `application` and needs the extra `inspect`.
"""

from llm_common.apps.inspector.rendering import render_html, render_index
from llm_common.apps.inspector.run_page import IndexEntry

__all__ = ["IndexEntry", "render_html", "render_index"]
