"""Where results came from: the URLs that a result names, and the list of them for a user."""

from collections.abc import Iterable
from typing import Any

from llm_common.pointers.pointer import ContextPointer

__all__ = ["list_sources", "urls_named_by"]


def urls_named_by(result: Any) -> list[str]:
    """URLs that a plain dict names under `url` and `sources`; the store itself reads `source_urls`."""
    if not isinstance(result, dict):
        return []
    sources = result.get("sources")
    entries = [result, *(sources if isinstance(sources, list) else [])]
    urls = (entry.get("url") for entry in entries if isinstance(entry, dict))
    return [url for url in urls if isinstance(url, str)]


def list_sources(pointers: Iterable[ContextPointer]) -> list[dict[str, str]]:
    """Each URL of the pointers once, in their order, as `tool`, `url`, `title` (the tool's name) and `pointer_id`."""
    sources: dict[str, dict[str, str]] = {}
    for pointer in pointers:
        for url in pointer.source_urls:
            facts = {"tool": pointer.tool_name, "url": url, "title": pointer.tool_name}
            sources.setdefault(url, facts | {"pointer_id": pointer.pointer_id})
    return list(sources.values())
