"""Store a host's large results in a `Session`, and return previews: `HostResults`."""

import getpass
import hashlib
import os
import re
import secrets
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import mcp_types as types
from pydantic import BaseModel

from llm_common.agents import (
    ContextPointerStore,
    OffloadPolicy,
    OffloadTurn,
    SavedResults,
    Session,
    SessionConfig,
)
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ResultLimits
from llm_common.apps.gateway.own_tools import ContextTool
from llm_common.apps.gateway.servers.tool_listing import CONTEXT
from llm_common.core import DefaultCounter, TokenCounter
from llm_common.errors import StoreError
from llm_common.pointers import MIN_LIMIT_TOKENS
from llm_common.runtime import in_thread_if_long
from llm_common.text import decode_json, to_json
from llm_common.tools import Tool

_MAX_QUERY_CHARS: Final = 1_000
_LINK_CHARS: Final = 2_000  # of a long one
_MAX_CHARS_PER_TOKEN: Final = 16  # longer texts exceed a limit without being counted
# Words in the names of arguments whose values say where something is, or which version of it.
_PLACE_NAMES: Final = frozenset(
    """
    branch commit cursor cwd dir directory file filename filepath files folder folders host path
    pathname paths ref repo repository rev revision root sha uri uris url urls version workspace
    """.split()  # noqa: SIM905
)
# A path, an address, or the name of a file: `a/b`, `C:\\a`, `https://a`, `~`, `.git`, `notes.md`.
_PLACE: Final = re.compile(
    r"\S*[/\\]\S*|~\S*|\.\S+|[\w.-]+\.(?:c|cfg|conf|cpp|cs|css|csv|db|docx?|gif|go|h|html?|ini|"
    r"java|jpe?g|js|json|jsonl|jsx|kt|lock|log|mdx?|pdf|php|png|ps1|py|rb|rs|rst|sh|sql|svg|toml|"
    r"tsv|tsx?|txt|xlsx?|xml|ya?ml|zip)",
    re.IGNORECASE,
)
# What hosts show as a page of their own, and read whole.
_PAGE_SCHEME: Final = "ui:"
_TEXT_TYPE: Final = re.compile(r"text/(?!html\b).*|application/[^;]*json.*", re.IGNORECASE)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Of a digest. Shorter than a SHA-256, and still beyond any collision.
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class ServerOutput:
    """A server's result or resource.

    Attributes:
        structured: The result as data, or None.
        texts: The text blocks, and the texts of embedded resources.
        links: The blocks that stay beside a preview of the texts.
        blocks: All blocks of the result, with the same content as `texts` and `links`.
        media: Images, sounds, binary resources and pages of a host, which always stay.
    """

    structured: Any = None
    texts: Sequence[str] = ()
    links: Sequence[types.ContentBlock] = ()
    blocks: Sequence[types.ContentBlock] = ()
    media: Sequence[types.ContentBlock] = ()

    @classmethod
    def of_result(cls, result: types.CallToolResult) -> Self:
        """Return the blocks of a tool's result, apart by what a preview does with them.

        A preview replaces the texts of embedded resources too. Each leaves a link.
        """
        texts: list[str] = []
        links: list[types.ContentBlock] = []
        media: list[types.ContentBlock] = []
        blocks: list[types.ContentBlock] = []
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
                links.append(types.ResourceLink(name=name, uri=uri, mime_type=resource.mime_type))
            else:
                media.append(block)
                continue
            blocks.append(block)
        return cls(result.structured_content, texts, links, blocks, media)

    @classmethod
    def of_resource(cls, contents: Sequence[types.TextResourceContents]) -> Self:
        """Return the contents of a resource: one text, or a list of contents."""
        if len(contents) == 1:
            return cls(texts=[contents[0].text])
        return cls(structured=as_json(contents))

    @property
    def size(self) -> int:
        """Return the characters of the texts, with an estimate for the links."""
        return sum(map(len, self.texts)) + len(self.links) * _LINK_CHARS


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


def _is_page(resource: types.TextResourceContents) -> bool:
    return str(resource.uri).lower().startswith(_PAGE_SCHEME)


@dataclass(frozen=True, slots=True)
class ResultPreview:
    """A preview in place of a server's output.

    Attributes:
        text: The preview.
        keeps_links: Whether the output's links stay beside the preview.
    """

    text: str
    keeps_links: bool


@dataclass(frozen=True, slots=True)
class ResultScope:
    """The id under which results are stored. A host reads every result of its scope.

    A host that resumes a conversation starts a new gateway, whose scope is the same.

    Attributes:
        session_id: The id, which reveals neither token nor path.
        siblings: The beginning of the ids of the same user's other scopes. Empty for a token,
            which says nothing about its user.
    """

    session_id: str
    siblings: str = ""

    @classmethod
    def of_process(cls, config_paths: Iterable[Path]) -> Self:
        """Return the scope of a host on stdio: its user, configuration and working folder."""
        siblings = f"stdio-{_digest(_user())}-"
        paths = sorted(str(path.absolute()) for path in config_paths)
        return cls(siblings + _digest(*paths, str(Path.cwd())), siblings)

    @classmethod
    def of_token(cls, authorization: str) -> Self:
        """Return the scope of a host over HTTP: its token."""
        return cls(f"http-{_digest(authorization)}")


class HostResults:
    """The stored results of one host.

    Args:
        config: Limits. With a `max_whole_tokens` of None, nothing is stored.
        store: Stores the results. Several hosts may share it.
        scope: Whose results they are. None for a scope that nothing else has.
        counter: Counts tokens. None for the default counter.

    Attributes:
        keeps: Whether large results are stored.
        tools: The tool that reads, searches and lists results, by its name without the host's
            prefix. Empty if nothing is stored.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: ContextPointerStore,
        *,
        scope: ResultScope | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.keeps: Final = config.max_whole_tokens is not None
        self._counter = counter or DefaultCounter()
        self._reader_name = f"{config.host_prefix}{CONTEXT}"
        max_tokens = config.max_whole_tokens or MIN_LIMIT_TOKENS
        settings = SessionConfig(
            offload=OffloadPolicy(reader_name=self._reader_name),
            max_read_tokens=max_tokens,
            # One tool has all three abilities. No tool of a server can have its name.
            search_name=self._reader_name,
            query_name=self._reader_name,
            finder_name=self._reader_name,
            max_tool_tokens=None,  # the gateway lists and finds the tools of its servers itself
            counter=self._counter,
            ttl_s=config.ttl_s,
        )
        scope = scope or ResultScope(f"host-{secrets.token_hex(16)}")
        results = SavedResults(
            store,
            scope.session_id,
            ttl_s=config.ttl_s,
            # Another conversation of the same user must not turn up in this one.
            lists_own=True,
            siblings=scope.siblings,
        )
        self._session = Session.over(results, settings)
        self._forget = config.forget
        self.tools: Final[dict[str, Tool]] = {}
        if self.keeps:
            self.tools[CONTEXT] = ContextTool(self._session, name=CONTEXT)

    async def preview(
        self,
        output: ServerOutput,
        limits: ResultLimits | None,
        *,
        tool: str,
        args: Mapping[str, Any],
    ) -> ResultPreview | None:
        """Return the preview that replaces an output, or None if the output stays whole.

        An output that cannot be stored stays whole, or is cut in its middle if it is long.

        Args:
            output: The output.
            limits: The limits of the tool's results. None keeps them whole.
            tool: The tool's name in the host.
            args: The arguments of the call.
        """
        if not self.keeps or limits is None:
            return None
        value, link_tokens = await in_thread_if_long(output.size, self._stored, output, limits)
        keeps_links = link_tokens is not None
        max_tokens = limits.max_whole_tokens - (link_tokens or 0)
        policy = OffloadPolicy(
            max_whole_tokens=max_tokens,
            max_preview_tokens=min(limits.max_preview_tokens, max_tokens),
            # MCP does not say which calls belong to one turn, so none share a budget.
            max_turn_tokens=None,
            reader_name=self._reader_name,
        )
        turn = OffloadTurn(policy, query=query_of(args), query_name="call", counter=self._counter)
        try:
            offloaded = await self._session.offload(value, tool=tool, args=args, turn=turn)
        except StoreError:
            return None
        if offloaded.is_whole:
            return None
        return ResultPreview(offloaded.text, keeps_links)

    def _stored(self, output: ServerOutput, limits: ResultLimits) -> tuple[Any, int | None]:
        """Return the value to store, and the tokens of the links beside its preview.

        Links that leave no room for a preview beside them are stored too, and have no tokens.
        """
        room_tokens = limits.max_whole_tokens - limits.max_preview_tokens
        links = to_json(as_json(output.links)) if output.links else ""
        if len(links) <= room_tokens * _MAX_CHARS_PER_TOKEN:
            tokens = self._counter.count(links)
            if tokens <= room_tokens:
                return stored_value(output.structured, output.texts), tokens
        blocks = as_json(output.blocks)
        if output.structured is None:
            return blocks, None
        return {"structuredContent": output.structured, "content": blocks}, None

    async def answer(self, name: str, args: Mapping[str, Any]) -> str:
        """Run one of `tools` and return its answer, within `max_whole_tokens`.

        Raises:
            ToolArgumentsError: If the arguments are not valid. The message says what to correct.
            ToolFailedError: If the result cannot be read. The message gives the reason.
        """
        return str(await self.tools[name].run(args))

    async def close(self) -> None:
        """Remove what this host has stored, if the configuration says so."""
        if self._forget:
            await self._session.clear()


def as_json(models: Sequence[BaseModel]) -> list[dict[str, Any]]:
    """Return models of the SDK as plain data."""
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]


def stored_value(structured: Any, texts: Sequence[str]) -> Any:
    """Return the value to store for a result: its text, its data, or both if they differ.

    Text is stored as the server wrote it, also where it is JSON, because a model may have to quote
    it byte for byte. Paths lead into such a text all the same.

    Args:
        structured: The result as data, or None.
        texts: The result as text blocks.
    """
    if structured is None and len(texts) == 1:
        return texts[0]
    parsed = [_parsed(text) for text in texts]
    value = _data_of(structured, texts, parsed)
    if isinstance(value, dict | list) and len(texts) == 1 and parsed[0] in (value, structured):
        return texts[0]
    return value


def result_data(structured: Any, texts: Sequence[str]) -> Any:
    """Return a result as data if the server sent data, otherwise as text.

    Args:
        structured: The result as data, or None. A list wrapped as `{"result": […]}` is unwrapped.
        texts: The result as text blocks.
    """
    return _data_of(structured, texts, [_parsed(text) for text in texts])


def _data_of(structured: Any, texts: Sequence[str], parsed: list[Any]) -> Any:
    """Return what `result_data` does, given the texts also parsed."""
    joined = "\n".join(texts)
    if structured is None:
        # Several documents of JSON stay apart, so that a path can lead into each of them.
        are_documents = all(isinstance(document, dict | list) for document in parsed)
        return list(texts) if len(texts) > 1 and are_documents else joined
    # Most servers send their data as text too. Then the text is not needed a second time.
    spellings = [parsed, list(texts), joined]
    if len(parsed) == 1:
        spellings += parsed
    value = structured
    if isinstance(structured, dict) and len(structured) == 1:
        ((name, inner),) = structured.items()
        # The SDK for Python sends a value that is no object as `{"result": …}`.
        if name == "result" or inner in spellings:
            value = inner
    if texts and value not in spellings and structured not in spellings:
        return {"structuredContent": structured, "text": joined}
    return value


def query_of(args: Mapping[str, Any]) -> str:
    """Return the words of a call, which choose the passages of a preview.

    Paths, addresses and names of files are left out: they say where the result comes from, and
    their rare words would outweigh all others. Numbers are mostly limits and pages.
    """
    words: list[str] = []
    # Breadth first, because the main arguments are at the top.
    queue: deque[tuple[str, Any]] = deque([("", dict(args))])
    remaining_chars = _MAX_QUERY_CHARS
    while queue and remaining_chars > 0:
        name, value = queue.popleft()
        if isinstance(value, Mapping):
            queue.extend(value.items())
        elif isinstance(value, list):
            queue.extend((name, item) for item in value)
        elif isinstance(value, str):
            name_words = re.split(r"[^a-z]+", _CAMEL.sub("_", name).lower())
            if not _PLACE_NAMES.isdisjoint(name_words):
                continue
            for word in value[:remaining_chars].split():
                if not _PLACE.fullmatch(word):
                    words.append(word)
                    remaining_chars -= len(word) + 1
    return " ".join(words)


def _parsed(text: str) -> Any:
    try:
        return decode_json(text.encode())
    except (ValueError, StoreError):
        return text


def _user() -> str:
    # The number, since the name comes from the environment, which a host may change.
    if hasattr(os, "getuid"):
        return str(os.getuid())
    return getpass.getuser()


def _digest(*parts: str) -> str:
    # No path and no header contains the separator, so different parts have different texts.
    text = "\0".join(("llm-common", *parts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
