"""`HostResults`: a host's large results as previews, read in parts and searched, by a `Session`."""

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
_COUNTED_CHARS: Final = 20_000
_FRAME_TOKENS: Final = 60
_LIST_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "after": {"type": "integer", "minimum": 0, "description": "How many of the newest to skip."}
    },
    "additionalProperties": False,
}


@dataclass(slots=True)
class GatewayCounts:
    """What the gateway did.

    Attributes:
        calls: Calls of the servers' tools.
        kept: Results that were stored and shown as previews.
        tokens_not_sent: Tokens of these results, less those of their previews. Those of long ones
            are estimated from a sample.
        tokens_read_back: Tokens of the answers of the tools that read, search and list results.
    """

    calls: int = 0
    kept: int = 0
    tokens_not_sent: int = 0
    tokens_read_back: int = 0


class HostResults:
    """The results of one host: what MCP returns, in and out of a `Session`.

    Args:
        config: Limits. A `max_whole_tokens` of None keeps nothing.
        store: Where results are stored. Several hosts may share one.
        counts: Counts what is done. Several hosts may share them.
        counter: Counts tokens. None takes the default.
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
        """Whether large results are stored at all."""
        self._counter = counter or DefaultCounter()
        self._max_tokens = config.max_whole_tokens or MIN_LIMIT_TOKENS
        policy = OffloadPolicy(
            max_whole_tokens=self._max_tokens,
            max_preview_tokens=min(config.max_preview_tokens, self._max_tokens),
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
        """The tools that a host is offered, by the names that it puts its prefix before."""
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
        """Return what a host sees instead of a result, or None if the result stays as it is.

        A result that cannot be stored stays as it is: nothing is lost.

        Args:
            structured: The result as data, or None.
            texts: The result as text blocks.
            tool: The tool's name as the host knows it.
            args: What it was called with.
            intent: What the caller wants from it.
        """
        self.counts.calls += 1
        if not self.keeps:
            return None
        value = await in_thread(stored_value, structured, texts)
        try:
            shown = await self._session.offload(
                value, tool=tool, args=args, query=query_of(args, intent)
            )
        except StoreError:
            return None
        if shown.pointer_id is None:
            return None
        sample = ("\n".join(texts) or to_json(value))[:_COUNTED_CHARS]
        sample_tokens = await in_thread(self._counter.count, sample)
        tokens = sample_tokens * shown.total_chars // max(len(sample), 1)
        self.counts.kept += 1
        self.counts.tokens_not_sent += max(tokens - self._counter.count(shown.text), 0)
        return shown.text

    async def answer(self, name: str, args: Mapping[str, Any]) -> str:
        """Return what one of `tools` answers, within the threshold.

        Raises:
            ToolArgumentsError: If the arguments do not fit. The text says what to do.
            ToolFailedError: If the result cannot be read. The text says why.
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
        rest = len(pointers) - after - len(lines)
        more = f" {rest} older ones follow after {after + len(lines)}." if rest > 0 else ""
        return f"{len(pointers)} results are stored.{more}\n{in_fence(chr(10).join(lines))}"


def stored_value(structured: Any, texts: Sequence[str]) -> Any:
    """Return what is stored of a result: its data, its text parsed if it is JSON, or both.

    Args:
        structured: Data, or None; a list wrapped as `{"result": […]}` is unwrapped.
        texts: Text blocks.
    """
    joined = "\n".join(texts)
    documents = [_parsed(text) if text.lstrip()[:1] in ("{", "[") else text for text in texts]
    from_texts: Any = documents
    if len(documents) == 1:
        from_texts = documents[0]
    elif any(isinstance(document, str) for document in documents):
        from_texts = joined
    if structured is None:
        return from_texts
    parsed = [_parsed(text) for text in texts]
    spellings = [parsed, list(texts), joined]
    if len(parsed) == 1:
        spellings += parsed
    value = structured
    if isinstance(structured, dict) and len(structured) == 1:
        ((name, inner),) = structured.items()
        value = inner if name == "result" or inner in spellings else structured
    if texts and value not in spellings and structured not in spellings:
        return {"structuredContent": structured, "text": joined}
    return from_texts if isinstance(value, str) and texts else value


def query_of(args: Mapping[str, Any], intent: str) -> str:
    """Return the words that a preview is made for: the intent, then those among the arguments."""
    words = [intent]
    waiting: deque[Any] = deque([dict(args)])
    left = _MAX_QUERY_CHARS - len(intent)
    while waiting and left > 0:
        value = waiting.popleft()
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            words.append(str(value)[:left])
            left -= len(words[-1])
    return " ".join(filter(None, words))[:_MAX_QUERY_CHARS]


def _parsed(text: str) -> Any:
    try:
        return decode_json(text.encode())
    except (ValueError, StoreError):
        return text
