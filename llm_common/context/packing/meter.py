"""`Meter`: token counts of texts, each counted once, and cheap estimates of the texts that need no count."""

from collections.abc import Iterable

from llm_common.core.tokens import TokenCounter

__all__ = ["SAMPLE_CHARS", "Meter"]

SAMPLE_CHARS = 600
"""Characters of a text that an estimate is made from."""

_SAMPLES = 4
_MAX_KNOWN_CHARS = 8_000_000


class Meter:
    """Counts with another counter and remembers the counts, until the texts reach eight million characters.

    Nothing is assumed of the counter but that it counts the same text alike. An estimate only decides what is counted
    at all.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}
        self._known_chars = 0

    def count(self, text: str) -> int:
        """The tokens of the text, by the counter."""
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._counter.count(text)
            self._known_chars += len(text)
            if self._known_chars > _MAX_KNOWN_CHARS:
                self._known, self._known_chars = {}, len(text)
            self._known[text] = tokens
        return tokens

    def tokens_per_char(self, texts: Iterable[str]) -> float:
        """Tokens per character in the beginnings of the first few texts; 0.0 without any."""
        sample = "\n".join(text[:SAMPLE_CHARS] for text, _ in zip(texts, range(_SAMPLES), strict=False))
        return self.count(sample) / len(sample) if sample else 0.0
