"""Read a server's blocks as text that may be previewed, and put a preview in their place."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types

from llm_common.apps.gateway.host_results import ResultPreview, ServerOutput

# What hosts show as a page of their own, and read whole.
_PAGE_SCHEME: Final = "ui:"
_TEXT_TYPE: Final = re.compile(r"text/(?!html\b).*|application/[^;]*json.*", re.IGNORECASE)


@dataclass(slots=True)
class ResultBlocks:
    """The blocks of a tool's result, apart by what a preview does with them.

    Attributes:
        texts: The text blocks, and the texts of embedded resources. A preview replaces them.
        links: The links, and a link in place of each embedded text. They stay if there are few.
        media: Images, sounds, binary resources and pages of a host. They always stay.
        stored: All blocks but `media`, as the server sent them.
    """

    texts: list[str] = field(default_factory=list)
    links: list[types.ResourceLink] = field(default_factory=list)
    media: list[types.ContentBlock] = field(default_factory=list)
    stored: list[types.ContentBlock] = field(default_factory=list)

    @classmethod
    def of(cls, content: Sequence[types.ContentBlock]) -> "ResultBlocks":
        """Return the blocks of a result."""
        blocks = cls()
        for block in content:
            if isinstance(block, types.TextContent):
                blocks.texts.append(block.text)
            elif isinstance(block, types.ResourceLink):
                blocks.links.append(block)
            elif (resource := _embedded_text(block)) is not None:
                blocks.texts.append(resource.text)
                blocks.links.append(_link_to(resource))
            else:
                blocks.media.append(block)
                continue
            blocks.stored.append(block)
        return blocks

    def output(self, structured: Any) -> ServerOutput:
        """Return what a preview may replace. `structured` is the result as data, or None."""
        if not self.links:
            return ServerOutput(structured, self.texts)
        return ServerOutput(structured, self.texts, _as_json(self.links), _as_json(self.stored))

    def with_preview(self, preview: ResultPreview) -> list[types.ContentBlock]:
        """Return the blocks for the host, with a preview in place of the long ones."""
        blocks: list[types.ContentBlock] = [types.TextContent(type="text", text=preview.text)]
        if preview.keeps_links:
            blocks += self.links
        return blocks + self.media


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


def read_blocks(result: types.CallToolResult) -> tuple[ResultBlocks, ServerOutput]:
    """Return the blocks of a result, and what a preview of it may replace."""
    blocks = ResultBlocks.of(result.content)
    return blocks, blocks.output(result.structured_content)


def output_of_resource(contents: Sequence[types.TextResourceContents]) -> ServerOutput:
    """Return the contents of a resource as a value to store: one text, or a list of contents."""
    if len(contents) == 1:
        return ServerOutput(texts=[contents[0].text])
    return ServerOutput(structured=_as_json(contents))


def _embedded_text(block: types.ContentBlock) -> types.TextResourceContents | None:
    """Return the resource of a block with text for a model, or None."""
    if not isinstance(block, types.EmbeddedResource):
        return None
    resource = block.resource
    if isinstance(resource, types.TextResourceContents) and not _is_page(resource):
        return resource
    return None


def _is_page(resource: types.TextResourceContents) -> bool:
    return str(resource.uri).lower().startswith(_PAGE_SCHEME)


def _link_to(resource: types.TextResourceContents) -> types.ResourceLink:
    uri = str(resource.uri)
    name = uri.rstrip("/").rpartition("/")[2] or uri
    return types.ResourceLink(
        type="resource_link", name=name, uri=resource.uri, mime_type=resource.mime_type
    )


def _as_json(models: Sequence[Any]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
