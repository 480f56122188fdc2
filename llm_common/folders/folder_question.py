"""A question about folders, which all steps of a pack ask: `FolderQuestion`."""

import re
from functools import cached_property
from typing import Final

from llm_common.folders.tree_index import IndexQuery
from llm_common.ranking.lexical import search_stems
from llm_common.ranking.question_names import names_in
from llm_common.ranking.question_words import QuestionWords

_IS_QUESTION_OR_REPORT: Final = re.compile(
    r"[?\n]|\A(?:what|where|when|which|who|whose|why|how|is|are|do|does|did|can|could|should|explain|find|show|describe)\b",
    re.IGNORECASE,
)


class FolderQuestion:
    """A question about folders, read once.

    Args:
        text: The question.

    Attributes:
        text: The question, without surrounding whitespace.
        whole: Its words in an index.
        title: The words of its first line, which is the title of a bug report.
        stems: Its words in a text.
        title_stems: Those of its first line.
        symbols: The names in it that look like code, or that are within quotes.
        asks_for_change: Whether it is one line that asks for a change.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        title = self.text.partition("\n")[0]
        self.whole = IndexQuery(self.text)
        self.title = IndexQuery(title)
        self.stems = search_stems(self.text)
        self.title_stems = search_stems(title)
        self.symbols: dict[str, None] = {}
        for name in names_in(self.text):
            if name.kind in ("symbol", "quoted"):
                self.symbols[name.text.removesuffix("()")] = None
        self.asks_for_change = _IS_QUESTION_OR_REPORT.search(self.text) is None

    @cached_property
    def words(self) -> QuestionWords:
        """What it asks of tables."""
        return QuestionWords(self.text)
