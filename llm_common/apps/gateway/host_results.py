"""Store a host's large results in a `Session`, and return previews: `HostResults`."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.agents.offloading import OffloadPolicy
from llm_common.agents.session import Session, SessionConfig
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.tool_listing import LISTER, READER, SEARCHER
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import StoreError
from llm_common.pointers.reading import MIN_LIMIT_TOKENS
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.canonical import decode_json
from llm_common.text.display import in_fence, one_line, to_json
from llm_common.tools.tool import Tool

_MAX_QUERY_CHARS: Final = 1_000
_LINE_CHARS: Final = 160
_COUNTED_CHARS: Final = 20_000  # of the sample from which a result's tokens are estimated
_FRAME_TOKENS: Final = 60  # for the fence, and for the line that counts older results
_LIST_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "after": {"type": "integer", "minimum": 0, "description": "How many of the newest to skip."}
    },
    "additionalProperties": False,
}


@dataclass(slots=True)
class GatewayCounts:
    """Counts of what the gateway has done.

    Attributes:
        calls: Calls of the servers' tools.
        kept: Results that were stored and replaced by previews.
        tokens_not_sent: Tokens of these results without the tokens of their previews. For a long
            result, estimated from a sample.
        tokens_read_back: Tokens of the answers of the tools that read, search and list results.
    """

    calls: int = 0
    kept: int = 0
    tokens_not_sent: int = 0
    tokens_read_back: int = 0


class HostResults:
    """The stored results of one host.

    Args:
        config: Limits. With a `max_whole_tokens` of None, nothing is stored.
        store: Stores the results. Several hosts may share it.
        counts: Counts what is done. Several hosts may share it.
        counter: Counts tokens. None for the default counter.

    Attributes:
        keeps: Whether large results are stored.
        tools: The tools that read, search and list results, by their names without the host's
            prefix.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: ContextPointerStore,
        *,
        counts: GatewayCounts | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.counts: Final = counts or GatewayCounts()
        self.keeps: Final = config.max_whole_tokens is not None
        self._counter = counter or DefaultCounter()
        self._max_tokens = config.max_whole_tokens or MIN_LIMIT_TOKENS
        policy = OffloadPolicy(
            max_whole_tokens=self._max_tokens,
            max_preview_tokens=min(config.max_preview_tokens, self._max_tokens),
            # MCP does not say which calls belong to one turn, so none share a budget.
            max_turn_tokens=None,
            reader_name=f"{config.host_prefix}{READER}",
        )
        settings = SessionConfig(
            offload=policy,
            max_read_tokens=self._max_tokens,
            search_name=f"{config.host_prefix}{SEARCHER}",
            max_tool_tokens=None,  # the gateway lists and finds the tools of its servers itself
            counter=self._counter,
        )
        self._session = Session(store, config=settings)
        self.tools: Final[dict[str, Tool]] = {}
        if self.keeps:
            reader, search = self._session.tools()
            lister = Tool(
                self._list,
                name=LISTER,
                description="Lists the stored results of this session, newest first.",
                parameters=_LIST_SCHEMA,
                read_only=True,
            )
            self.tools.update({READER: reader, SEARCHER: search, LISTER: lister})

    async def preview(
        self,
        structured: Any,
        texts: Sequence[str],
        *,
        tool: str,
        args: Mapping[str, Any],
        intent: str = "",
    ) -> str | None:
        """Return the preview that replaces a result, or None if the result stays whole.

        A result that cannot be stored stays whole, so nothing is lost.

        Args:
            structured: The result as data, or None.
            texts: The result as text blocks.
            tool: The tool's name in the host.
            args: The arguments of the call.
            intent: What the caller wants from the result.
        """
        self.counts.calls += 1
        if not self.keeps:
            return None
        # In a thread, because parsing megabytes of JSON would block the event loop.
        value = await in_thread(stored_value, structured, texts)
        try:
            offloaded = await self._session.offload(
                value, tool=tool, args=args, query=query_of(args, intent)
            )
        except StoreError:
            return None
        if offloaded.is_whole:
            return None
        if offloaded.pointer_id is None:  # the store failed, and the result is too long
            return offloaded.text
        # Counting a long text takes seconds, so its tokens are estimated from its beginning.
        sample = ("\n".join(texts) or to_json(value))[:_COUNTED_CHARS]
        sample_tokens = await in_thread(self._counter.count, sample)
        tokens = sample_tokens * offloaded.total_chars // max(len(sample), 1)
        self.counts.kept += 1
        self.counts.tokens_not_sent += max(tokens - self._counter.count(offloaded.text), 0)
        return offloaded.text

    async def answer(self, name: str, args: Mapping[str, Any]) -> str:
        """Run one of `tools` and return its answer, within `max_whole_tokens`.

        Raises:
            ToolArgumentsError: If the arguments are not valid. The message says what to correct.
            ToolFailedError: If the result cannot be read. The message gives the reason.
        """
        answer = str(await self.tools[name].run(args))
        self.counts.tokens_read_back += self._counter.count(answer)
        return answer

    async def close(self) -> None:
        """Remove this host's results."""
        await self._session.clear()

    async def _list(self, after: int = 0) -> str:
        pointers = [*self._session.results.pointers.values()][::-1]
        lines: list[str] = []
        for pointer in pointers[after:]:
            summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
            line = f"{pointer.pointer_id}: {summary} ({pointer.result_bytes or 0:,} bytes)"
            if self._counter.count("\n".join([*lines, line])) > self._max_tokens - _FRAME_TOKENS:
                break
            lines.append(line)
        head = f"{len(pointers)} results are stored."
        older = len(pointers) - after - len(lines)
        if older > 0:
            head += f" {older} older ones follow after {after + len(lines)}."
        return f"{head}\n{in_fence(chr(10).join(lines))}"


def stored_value(structured: Any, texts: Sequence[str]) -> Any:
    """Return the value to store for a result: its text, its data, or both if they differ.

    Text is stored as the server wrote it, also where it is JSON, because a model may have to quote
    it byte for byte. Paths lead into such a text all the same.

    Args:
        structured: The result as data, or None.
        texts: The result as text blocks.
    """
    data = result_data(structured, texts)
    if isinstance(data, dict | list) and len(texts) == 1:
        text = texts[0]
        if _parsed(text) in (data, structured):
            return text
    return data


def result_data(structured: Any, texts: Sequence[str]) -> Any:
    """Return a result as data if the server sent data, otherwise as text.

    Args:
        structured: The result as data, or None. A list wrapped as `{"result": […]}` is unwrapped.
        texts: The result as text blocks.
    """
    joined = "\n".join(texts)
    parsed = list(map(_parsed, texts))
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


def query_of(args: Mapping[str, Any], intent: str) -> str:
    """Return the query of a preview: the intent, then the words and numbers of the arguments."""
    words = [intent]
    # Breadth first, because the main arguments are at the top.
    queue: deque[Any] = deque([dict(args)])
    remaining_chars = _MAX_QUERY_CHARS - len(intent)
    while queue and remaining_chars > 0:
        value = queue.popleft()
        if isinstance(value, Mapping):
            queue.extend(value.values())
        elif isinstance(value, list):
            queue.extend(value)
        # A bool is an int too, but no word to search for.
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            words.append(str(value)[:remaining_chars])
            remaining_chars -= len(words[-1])
    return " ".join(filter(None, words))[:_MAX_QUERY_CHARS]


def _parsed(text: str) -> Any:
    try:
        return decode_json(text.encode())
    except (ValueError, StoreError):
        return text
