"""Divide a text into its sentences."""

import re
from collections.abc import Iterator

# A mark ends a sentence before a space and no small letter, or anywhere in Chinese and Japanese.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'»”)]*\s+(?=[^a-zà-öø-ÿа-я\s])|(?<=[。！？؟।])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(.])(?:[^\W\d_]|[A-Z][^\W\d_]{1,2}|(?:a[bm]|bis|de[mnr]|vom|zum) \d{1,2})\.$"
)  # Mr., z. B. or am 3. Mai, but not: week 3.


def sentences_in(line: str) -> Iterator[str]:
    """Yield the sentences of a line or a paragraph."""
    start = 0
    for end in _SENTENCE_END.finditer(line):
        sentence = line[start : end.start()].strip()
        if sentence and not _ABBREVIATION.search(sentence[-8:]):
            yield sentence
            start = end.end()
    if sentence := line[start:].strip():
        yield sentence
