"""`ResultDesk`: one host session's large results, kept behind previews, read in parts and searched."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.agents.offloading import OffloadPolicy, OffloadTurn
from llm_common.agents.tool_context import ToolContextManager
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.tool_listing import LISTER, READER, SEARCHER
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import PointerNotFoundError, StoreError, UnserialisableError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.store import ContextPointerStore
from llm_common.ranking import folded, scan, search_stems
from llm_common.ranking.passages import RankedPassages
from llm_common.text.canonical import decode_json
from llm_common.text.display import in_fence, one_line, to_json
from llm_common.tools.read_back import ReadBackTool
from llm_common.tools.tool import Tool

_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME_CHARS: Final = 100
_MAX_QUERY_CHARS: Final = 1_000
_MAX_SEARCHED: Final = 200
_MAX_SEARCHED_CHARS: Final = 20_000_000
_MAX_FOUND: Final = 8
_MIN_PASSAGE_CHARS: Final = 200
_LINE_CHARS: Final = 160
_COUNTED_CHARS: Final = 20_000
_CHARS_PER_TOKEN: Final = 3
_FRAME_TOKENS: Final = 60
_WORDS_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that the results hold."}},
    "required": ["query"],
    "additionalProperties": False,
}
_LIST_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "after": {"type": "integer", "minimum": 0, "description": "How many of the newest to skip."}
    },
    "additionalProperties": False,
}


@dataclass(slots=True)
class Figures:
    """What the gateway did.

    Attributes:
        calls: Calls of the servers' tools.
        kept: Results that were stored and shown as previews.
        tokens_not_sent: Tokens of these results, less those of their previews; of long ones
            estimated from a sample.
        tokens_read_back: Tokens of the answers of the tools that read, search and list results.
    """

    calls: int = 0
    kept: int = 0
    tokens_not_sent: int = 0
    tokens_read_back: int = 0


class ResultDesk:
    """Keeps a host session's large results, and answers what is asked about them. Knows no other session's results.

    Args:
        config: Limits; a `threshold_tokens` of None keeps nothing.
        store: Where results go; several sessions may share one.
        figures: Counts; several sessions may share them.
        counter: Counts tokens; None takes the upper bound.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: ContextPointerStore,
        *,
        figures: Figures | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._config = config
        self._limit_tokens = config.threshold_tokens or 0
        self._counter = counter or DefaultCounter()
        self._context = ToolContextManager(pointer_store=store)
        self.figures: Final = figures or Figures()
        reader = f"{config.host_prefix}{READER}"
        self._policy = OffloadPolicy(
            threshold_tokens=self._limit_tokens,
            preview_tokens=min(config.preview_tokens, self._limit_tokens),
            turn_tokens=None,
            reader_name=reader,
        )
        self.tools: Final[dict[str, Tool]] = (
            {tool.name: tool for tool in self._tools(reader)} if self.keeps else {}
        )

    @property
    def keeps(self) -> bool:
        """Whether large results are stored at all."""
        return self._config.threshold_tokens is not None

    def _tools(self, reader: str) -> tuple[Tool, ...]:
        return (
            ReadBackTool(
                self._context.load_payload, limit_tokens=self._limit_tokens, counter=self._counter
            ),
            Tool(
                self._search,
                name=SEARCHER,
                description=f"Finds words in all stored results of this session; then read more with {reader}.",
                parameters=_WORDS_SCHEMA,
                read_only=True,
            ),
            Tool(
                self._list,
                name=LISTER,
                description="Lists the stored results of this session, newest first.",
                parameters=_LIST_SCHEMA,
                read_only=True,
            ),
        )

    async def preview(
        self,
        structured: Any,
        texts: Sequence[str],
        *,
        tool: str,
        args: Mapping[str, Any],
        intent: str = "",
    ) -> str | None:
        """What a host sees instead of a result that is over the threshold.

        None if the result stays as it is.
        A result that cannot be stored stays as it is: nothing is lost.

        Args:
            structured: The result as data, or None.
            texts: The result as text blocks.
            tool: The tool's name as the host knows it.
            args: What it was called with.
            intent: What the caller wants from it.
        """
        self.figures.calls += 1
        if not self.keeps or await self._is_small(structured, texts):
            return None
        value = await in_thread(stored_value, structured, texts)
        turn = OffloadTurn(self._policy, query=query_of(args, intent), counter=self._counter)
        name = _UNSAFE_NAME.sub("_", tool)[:_MAX_NAME_CHARS].strip(".-") or "tool"
        if await turn.keeps(name, value):  # its text takes more than its value
            return None
        try:
            pointer = await self._context.save_context(name, dict(args), value)
        except StoreError:
            return None
        shown = await turn.preview(pointer, await self._context.as_stored(value))
        await self._count(value, shown.text)
        return shown.text

    async def answer(self, name: str, args: Mapping[str, Any]) -> str:
        """What one of `tools` answers, within the threshold.

        Raises:
            ToolArgumentsError: The arguments do not fit; the text says what to do.
            ToolFailedError: The result cannot be read; the text says why.
        """
        shown = str(await self.tools[name].run(args))
        self.figures.tokens_read_back += self._counter.count(shown)
        return shown

    async def close(self) -> None:
        """Removes this session's results."""
        await self._context.clear()

    async def _is_small(self, structured: Any, texts: Sequence[str]) -> bool:
        data = "" if structured is None else _json(structured)
        longest = max((data, "\n".join(texts)), key=len)
        # a token is a byte or more
        if len(longest) * (1 if longest.isascii() else 4) <= self._limit_tokens:
            return True
        if len(longest) > self._limit_tokens * 16:
            return False
        return await in_thread(self._counter.count, longest) <= self._limit_tokens

    async def _count(self, value: object, preview: str) -> None:
        def estimate() -> int:
            text = value if isinstance(value, str) else to_json(value)
            sample = text[:_COUNTED_CHARS]
            return self._counter.count(sample) * len(text) // max(len(sample), 1)

        self.figures.kept += 1
        self.figures.tokens_not_sent += max(
            await in_thread(estimate) - self._counter.count(preview), 0
        )

    async def _search(self, query: str) -> str:
        return await in_thread(self._found, query)

    def _found(self, query: str) -> str:
        stems = search_stems(query)
        if not stems:
            return "The query has no words to look for; name some."
        texts = self._texts()
        scores = scan(query, [(folded(text),) for _, text in texts], weights=(1.0,))
        best = sorted((-score, number) for number, score in enumerate(scores) if score > 0)[
            :_MAX_FOUND
        ]
        if not best:
            return f"None of the {len(texts)} stored results holds these words; try others."
        passages = [
            (texts[number][0], RankedPassages(texts[number][1], stems)) for _, number in best
        ]
        room = self._limit_tokens * _CHARS_PER_TOKEN // len(best)
        while True:
            blocks = [_found_block(pointer, one, room) for pointer, one in passages]
            shown = (
                f"{len(best)} stored results hold these words.\n{in_fence(chr(10).join(blocks))}"
            )
            if self._counter.count(shown) <= self._limit_tokens:
                return shown
            if room > _MIN_PASSAGE_CHARS:
                room = room * 3 // 4
            else:
                passages.pop()

    def _texts(self) -> list[tuple[ContextPointer, str]]:
        """The newest results as text, as many as a search takes."""
        found: list[tuple[ContextPointer, str]] = []
        left = _MAX_SEARCHED_CHARS
        for pointer in islice(reversed(self._context.get_all_pointers()), _MAX_SEARCHED):
            try:
                value = self._context.load_result(pointer=pointer)
            except PointerNotFoundError:  # expired, or evicted for a newer one
                continue
            text = value if isinstance(value, str) else to_json(value)
            left -= len(text)
            if left < 0:
                break
            found.append((pointer, text))
        return found

    async def _list(self, after: int = 0) -> str:
        pointers = self._context.get_all_pointers()[::-1]
        lines: list[str] = []
        for pointer in pointers[after:]:
            size = f"{pointer.result_bytes or 0:,} bytes"
            line = (
                f"{pointer.pointer_id}: {one_line(pointer.summary, max_chars=_LINE_CHARS)} ({size})"
            )
            if self._counter.count("\n".join([*lines, line])) > self._limit_tokens - _FRAME_TOKENS:
                break
            lines.append(line)
        rest = len(pointers) - after - len(lines)
        more = f" {rest} older ones follow after {after + len(lines)}." if rest > 0 else ""
        return f"{len(pointers)} results are stored.{more}\n{in_fence(chr(10).join(lines))}"


def stored_value(structured: Any, texts: Sequence[str]) -> Any:
    """What is stored of a result: its data, its text parsed if it is JSON, or both if they differ.

    Args:
        structured: Data, or None; a list wrapped as `{"result": […]}` is unwrapped.
        texts: Text blocks.
    """
    joined = "\n".join(texts)
    documents = [_parsed(text) if text.lstrip()[:1] in ("{", "[") else text for text in texts]
    several_texts = len(texts) > 1 and any(isinstance(document, str) for document in documents)
    from_texts = joined if several_texts else documents[0] if len(documents) == 1 else documents
    if structured is None:
        return from_texts
    parsed = [_parsed(text) for text in texts]
    said = (parsed, list(texts), joined, *(parsed if len(parsed) == 1 else ()))
    value = structured
    if isinstance(structured, dict) and len(structured) == 1:
        ((name, inner),) = structured.items()
        value = inner if name == "result" or inner in said else structured
    if texts and value not in said and structured not in said:
        return {"structuredContent": structured, "text": joined}
    return from_texts if isinstance(value, str) and texts else value


def query_of(args: Mapping[str, Any], intent: str) -> str:
    """The words that a preview is made for: the intent, then the texts and numbers among the arguments."""
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


def _json(value: Any) -> str:
    try:
        return to_json(value)
    except UnserialisableError:
        return ""


def _found_block(pointer: ContextPointer, passages: RankedPassages, room: int) -> str:
    found = passages.best(room=room, count=len)
    size = f"{len(passages.text):,} characters are stored"
    head = f"{pointer.pointer_id}: {one_line(pointer.summary, max_chars=_LINE_CHARS)} ({size})"
    return f"{head}\n{found.text}" if found else head
