"""`ContextOverview`: shows the model what is in its prompt, and moves outputs out and back in.

An overview takes at most 150 tokens, for the tail of a prompt. `drop_context` and `restore_context`
change no state: `fold` reads their calls in the history. So the prompt keeps its beginning until
the next step of folding, and a conversation that is resumed has the same drops.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final

from llm_common._threads import in_thread
from llm_common.agents.session.offloading import text_of
from llm_common.agents.session.saved import SessionResults
from llm_common.core.tokens import TokenCounter
from llm_common.errors import ToolArgumentsError
from llm_common.history.fold import Folded
from llm_common.history.folding import HISTORY_TOOL
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.canonical import decode_json
from llm_common.text.display import in_fence, one_line
from llm_common.tools.tool import Tool

DROP_NAME: Final = "drop_context"
RESTORE_NAME: Final = "restore_context"

_MAX_TOKENS: Final = 150  # small enough for every prompt of a conversation
_MAX_ITEMS: Final = 10  # of each kind: more do not fit
_LINE_CHARS: Final = 100
# What a restored output may take of the prompt. The model reads parts of a larger one.
_MAX_RESTORED_SHARE: Final = 0.5
_IDS: Final = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
    "required": ["ids"],
    "additionalProperties": False,
}
_ID: Final = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}


class ContextOverview:
    """What is in the prompt of a session and behind its pointers.

    Args:
        results: The results of the session.
        counter: Counts tokens.
        reader_name: The model's name for the tool that reads results.
        max_tokens: The limit of `fold`. None if the history is never folded.
    """

    def __init__(
        self,
        results: SessionResults,
        *,
        counter: TokenCounter,
        reader_name: str,
        max_tokens: int | None,
    ) -> None:
        self._results = results
        self._counter = counter
        self._reader_name = reader_name
        self._max_tokens = max_tokens
        self._folded: Folded | None = None
        self._reads: Counter[str] = Counter()

    def note_prompt(self, folded: Folded) -> None:
        """Remember the newest prompt."""
        self._folded = folded

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a stored result for a reader, and count the reading."""
        loaded = self._results.load_payload(pointer_id)
        self._reads[pointer_id] += 1
        return loaded

    def text(self) -> str:
        """Return the overview.

        Raises:
            StoreError: If the store cannot be read.
        """
        pointers = self._results.list_all()[::-1]
        if self._folded is None and not pointers:
            return "No results are stored."
        head = "\n".join([*self._prompt_lines(), *self._stored_lines(pointers)])
        text = head
        lines: list[str] = []
        # In turn, so that outputs to drop and results to restore both have lines.
        pairs = zip_longest(self._shown_items(), self._stored_items(pointers))
        for line in filter(None, chain.from_iterable(pairs)):
            lines.append(line)
            longer = f"{head}\n{in_fence(chr(10).join(lines))}"
            if self._counter.count(longer) > _MAX_TOKENS:
                break
            text = longer
        return text

    def tools(self) -> tuple[Tool, Tool]:
        """Return the two tools that change what the prompt shows."""
        drop = Tool(
            self._drop,
            name=DROP_NAME,
            description=(
                "Makes room: outputs of tools leave your context when it is next shortened. Pass "
                f"their ids from the overview. {RESTORE_NAME} shows them again."
            ),
            parameters=_IDS,
            read_only=True,
        )
        restore = Tool(
            self._restore,
            name=RESTORE_NAME,
            description="Shows a stored output again, whole and word for word, by its id.",
            parameters=_ID,
            read_only=True,
        )
        return drop, restore

    def _prompt_lines(self) -> list[str]:
        """Return what the newest prompt has, by the roles of its messages."""
        if self._folded is None:
            return []
        roles = [f"{role} {tokens:,}" for role, tokens in self._folded.role_tokens.items()]
        limit = f" of {self._max_tokens:,}" if self._max_tokens is not None else ""
        return [f"Your context: {self._folded.tokens:,}{limit} tokens ({', '.join(roles)})."]

    def _stored_lines(self, pointers: Sequence[ContextPointer]) -> list[str]:
        """Return what is behind pointers, by kind."""
        if not pointers:
            return []
        messages = [pointer for pointer in pointers if pointer.tool_name == HISTORY_TOOL]
        parts = []
        results = len(pointers) - len(messages)
        if results:
            parts.append(f"{results} results")
        if messages:
            parts.append(f"{len(messages)} parts of the conversation")
        size_bytes = sum(pointer.result_bytes or 0 for pointer in pointers)
        line = f"{' and '.join(parts)} are stored, newest first, {size_bytes:,} bytes."
        return [f"{line} {self._reader_name} reads them."]

    def _shown_items(self) -> list[str]:
        """Return a line for each output in the prompt that can be dropped, the largest first."""
        if self._folded is None:
            return []
        largest = sorted(self._folded.outputs, key=lambda output: -output.tokens)
        lines = []
        for output in largest[:_MAX_ITEMS]:
            name = one_line(output.tool_name, max_chars=_LINE_CHARS)
            age = self._folded.message_count - output.position
            lines.append(
                f"{output.pointer_id}: {name}, shown, {output.tokens:,} tokens, {age} messages ago"
            )
        return lines

    def _stored_items(self, pointers: Sequence[ContextPointer]) -> list[str]:
        lines = []
        for pointer in pointers[:_MAX_ITEMS]:
            line = f"{pointer.pointer_id}: {one_line(pointer.summary, max_chars=_LINE_CHARS)}"
            if reads := self._reads[pointer.pointer_id]:
                line += f", read {reads} times" if reads > 1 else ", read once"
            lines.append(line)
        return lines

    async def _drop(self, ids: Sequence[str]) -> str:
        shown = {output.pointer_id for output in self._folded.outputs} if self._folded else set()
        unknown = [pointer_id for pointer_id in ids if pointer_id not in shown]
        if unknown:
            listed = ", ".join(sorted(shown)) or "none"
            raise ToolArgumentsError(
                f"{DROP_NAME} did nothing: {one_line(', '.join(unknown), max_chars=_LINE_CHARS)} "
                f"is not the id of an output in your context. These are: {listed}",
                tool=DROP_NAME,
            )
        return (
            f"{', '.join(dict.fromkeys(ids))}: dropped when the context is next shortened. "
            f"{RESTORE_NAME} shows it again."
        )

    async def _restore(self, id: str) -> str:  # noqa: A002 - the name of the argument in the schema
        if self._folded and any(output.pointer_id == id for output in self._folded.outputs):
            return f"{id} is still in your context and stays there."
        text = await in_thread(self._load_text, id)
        if self._max_tokens is not None:
            tokens = await in_thread(self._counter.count, text)
            max_tokens = int(self._max_tokens * _MAX_RESTORED_SHARE)
            if tokens > max_tokens:
                raise ToolArgumentsError(
                    f"{RESTORE_NAME} showed nothing: {id} has {tokens:,} tokens, and "
                    f"{max_tokens:,} fit; read parts of it with {self._reader_name}",
                    tool=RESTORE_NAME,
                )
        return text

    def _load_text(self, pointer_id: str) -> str:
        _, payload = self.load_payload(pointer_id)
        return text_of(decode_json(payload))
