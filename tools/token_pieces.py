"""Writes llm_common/core/token_pieces.json: short texts that are one token in both cl100k_base and o200k_base.

`UpperBoundCounter` depends on them. Words are taken only if they stay one token with a space in
front, and at most two with any other mark in front, since both tokenizers join a word with the one
character before it. Run:

    .venv/bin/python tools/token_pieces.py
"""

import base64
import gzip
import json
import re
import string
import unicodedata
from importlib import resources
from pathlib import Path

from bpe_openai import _bindings

ENCODINGS = ("cl100k_base", "o200k_base")
TARGET = Path(__file__).parents[1] / "llm_common" / "core" / "token_pieces.json"
WORD = re.compile(rb"[A-Z]*[a-z]+|[A-Z]+")
MARK = re.compile(rb" ?[!-/:-@\[-`{-~]+[\r\n]*|[ \t\f\v]*[\r\n]+|[\t\f\v]+")
MAX_MARK_BYTES = 12
MAX_CHARACTER_BYTES = 4
MAX_TOKENS_BEHIND_A_MARK = 2


def vocabulary(encoding: str) -> set[bytes]:
    packed = resources.files("bpe_openai.data").joinpath(f"{encoding}.tiktoken.gz").read_bytes()
    return {
        base64.b64decode(line.split()[0])
        for line in gzip.decompress(packed).splitlines()
        if line.strip()
    }


def stands_alone(text: str) -> bool:
    """Return whether no token joins part of the character to a neighbour.

    Some do in the scripts from U+0800 to U+0FFF.
    """
    return (
        len(text) == 1
        and not text.isascii()
        and not "\u0800" <= text < "\u1000"
        and unicodedata.category(text)[0] != "M"
    )


def main() -> None:
    shared = vocabulary(ENCODINGS[0]) & vocabulary(ENCODINGS[1])
    counters = [_bindings.tokenizer_for_encoding(name) for name in ENCODINGS]
    in_front = (set(string.punctuation) | {"\t", "\f", "\0"}) - {"'"}

    def stands_behind_marks(word: str) -> bool:
        return all(
            counter.count(mark + word) <= MAX_TOKENS_BEHIND_A_MARK
            for mark in in_front
            for counter in counters
        )

    words = [token.decode() for token in shared if WORD.fullmatch(token) and b" " + token in shared]
    texts = {token.decode(errors="ignore") for token in shared if len(token) <= MAX_CHARACTER_BYTES}
    pieces = {
        "words": " ".join(sorted(word for word in words if stands_behind_marks(word))),
        "characters": "".join(
            sorted(text for text in texts if stands_alone(text) and text.encode() in shared)
        ),
        "marks": sorted(
            token.decode()
            for token in shared
            if len(token) <= MAX_MARK_BYTES and MARK.fullmatch(token)
        ),
    }
    TARGET.write_text(json.dumps(pieces, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print({name: len(value) for name, value in pieces.items()}, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
