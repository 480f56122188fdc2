"""`overview_text`: what is in a prompt and behind pointers, for the prompt's tail.

It takes at most 150 tokens, and names the outputs that `drop_context` and `restore_context` move.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final

from llm_common.agents.session.config import SessionConfig
from llm_common.history.fold import Folded
from llm_common.history.folding import HISTORY_TOOL
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.display import in_fence, one_line

_MAX_TOKENS: Final = 150  # small enough for every prompt of a conversation
_MAX_ITEMS: Final = 10  # of each kind: more do not fit
_LINE_CHARS: Final = 100


def overview_text(
    pointers: Sequence[ContextPointer],
    folded: Folded | None,
    reads: Mapping[str, int],
    config: SessionConfig,
) -> str:
    """Return the overview of a session.

    Args:
        pointers: The stored results, newest first.
        folded: The newest folded prompt. None before the first.
        reads: How often each result was read, by pointer id.
        config: The limits and policies.
    """
    if folded is None and not pointers:
        return "No results are stored."
    sentences = []
    if folded is not None:
        sentences.append(_prompt_line(folded, config))
    if pointers:
        sentences.append(_stored_line(pointers, config.offload.reader_name))
    text = head = "\n".join(sentences)
    lines: list[str] = []
    # In turn, so that outputs to drop and results to restore both have lines.
    pairs = zip_longest(_shown_items(folded), _stored_items(pointers, reads))
    for line in filter(None, chain.from_iterable(pairs)):
        lines.append(line)
        longer = f"{head}\n{in_fence(chr(10).join(lines))}"
        if config.counter.count(longer) > _MAX_TOKENS:
            break
        text = longer
    return text


def _prompt_line(folded: Folded, config: SessionConfig) -> str:
    """Return what the newest prompt has, by the roles of its messages."""
    roles = [f"{role} {tokens:,}" for role, tokens in folded.role_tokens.items()]
    limit = f" of {config.fold.max_tokens:,}" if config.fold is not None else ""
    return f"Your context: {folded.tokens:,}{limit} tokens ({', '.join(roles)})."


def _stored_line(pointers: Sequence[ContextPointer], reader_name: str) -> str:
    """Return what is behind pointers, by kind."""
    messages = [pointer for pointer in pointers if pointer.tool_name == HISTORY_TOOL]
    parts = []
    results = len(pointers) - len(messages)
    if results:
        parts.append(f"{results} results")
    if messages:
        parts.append(f"{len(messages)} parts of the conversation")
    size_bytes = sum(pointer.result_bytes or 0 for pointer in pointers)
    line = f"{' and '.join(parts)} are stored, newest first, {size_bytes:,} bytes."
    return f"{line} {reader_name} reads them."


def _shown_items(folded: Folded | None) -> list[str]:
    """Return a line for each output in the prompt that can be dropped, the largest first."""
    if folded is None:
        return []
    largest = sorted(folded.outputs, key=lambda output: -output.tokens)
    lines = []
    for output in largest[:_MAX_ITEMS]:
        name = one_line(output.tool_name, max_chars=_LINE_CHARS)
        age = folded.message_count - output.position
        lines.append(
            f"{output.pointer_id}: {name}, shown, {output.tokens:,} tokens, {age} messages ago"
        )
    return lines


def _stored_items(pointers: Sequence[ContextPointer], reads: Mapping[str, int]) -> list[str]:
    lines = []
    for pointer in pointers[:_MAX_ITEMS]:
        line = f"{pointer.pointer_id}: {one_line(pointer.summary, max_chars=_LINE_CHARS)}"
        if times := reads.get(pointer.pointer_id):
            line += f", read {times} times" if times > 1 else ", read once"
        lines.append(line)
    return lines
