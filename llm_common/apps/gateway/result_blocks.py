"""Read a server's blocks as text that may be previewed."""

import re
from collections.abc import Sequence
from typing import Final

import mcp_types as types

from llm_common.apps.gateway.host_results import ServerOutput, as_json

# What hosts show as a page of their own, and read whole.
_PAGE_SCHEME: Final = "ui:"
_TEXT_TYPE: Final = re.compile(r"text/(?!html\b).*|application/[^;]*json.*", re.IGNORECASE)


def output_of_result(result: types.CallToolResult) -> ServerOutput:
    """Return the blocks of a tool's result, apart by what a preview does with them.

    A preview replaces the texts of embedded resources too. Each leaves a link.
    """
    texts: list[str] = []
    links: list[types.ContentBlock] = []
    media: list[types.ContentBlock] = []
    stored: list[types.ContentBlock] = []
    for block in result.content:
        resource = getattr(block, "resource", None)
        if isinstance(block, types.TextContent):
            texts.append(block.text)
        elif isinstance(block, types.ResourceLink):
            links.append(block)
        elif isinstance(resource, types.TextResourceContents) and not _is_page(resource):
            texts.append(resource.text)
            uri = str(resource.uri)
            name = uri.rstrip("/").rpartition("/")[2] or uri
            link = types.ResourceLink(name=name, uri=uri, mime_type=resource.mime_type)
            links.append(link)
        else:
            media.append(block)
            continue
        stored.append(block)
    return ServerOutput(result.structured_content, texts, links, stored, media)


def previewable_texts(
    contents: Sequence[types.TextResourceContents | types.BlobResourceContents],
) -> list[types.TextResourceContents]:
    """Return the contents of a resource that are text for a model.

    Others are for the host itself: pages, such as HTML or `ui://`, and whatever has no type.
    """
    texts: list[types.TextResourceContents] = []
    for content in contents:
        if not isinstance(content, types.TextResourceContents) or _is_page(content):
            continue
        if _TEXT_TYPE.fullmatch(content.mime_type or ""):
            texts.append(content)
    return texts


def output_of_resource(contents: Sequence[types.TextResourceContents]) -> ServerOutput:
    """Return the contents of a resource as a value to store: one text, or a list of contents."""
    if len(contents) == 1:
        return ServerOutput(texts=[contents[0].text])
    return ServerOutput(structured=as_json(contents))


def _is_page(resource: types.TextResourceContents) -> bool:
    return str(resource.uri).lower().startswith(_PAGE_SCHEME)
