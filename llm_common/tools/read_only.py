"""Whether a tool only reads, by the verbs in its name and in the names of its parameters.

Words are no proof. A tool's author may say it by `read_only` or MCP's `readOnlyHint`; this is for
tools without such a mark, and in doubt the answer is no.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from llm_common.ranking.lexical import identifier_words
from llm_common.tools.signature import properties_of

# ruff: noqa: SIM905 - a list would have a line for each word
_READING: Final = frozenset(
    """
    analyze browse calculate check compare compute convert count describe diff estimate explain
    fetch find forecast get grep inspect list look lookup measure predict query read retrieve
    search show stat status summarize translate validate verify view
    """.split()
)
_WRITING: Final = frozenset(
    """
    accept activate add adjust alter append apply approve archive assign attach block book buy
    cancel charge clear clone close commit confirm copy create deactivate decline decrement delete
    deploy deposit destroy detach disable disconnect donate drop edit enable erase exec execute
    flush follow format grant increment insert install invite invoke join kill launch lock login
    logout mark merge migrate modify move notify order overwrite patch pause pay post provision
    publish purge push put reboot redeem refund register reject remove rename replace reply
    reserve reset respond restart restore resume revert revoke rotate run save sell send set share
    shutdown sign spend start stop submit subscribe swap sync terminate toggle transfer trigger
    truncate unassign unblock undo unfollow uninstall unlink unlock unsubscribe update upload
    upsert wipe withdraw write
    """.split()
)
# Verbs at the beginning of a name and in that of a flag, else nouns: `order_pizza`, but `get_order`
# and `start_date`.
_NOUNS: Final = frozenset(
    """
    accept archive block book charge copy deposit drop follow format join launch lock login mark
    order patch post run set share sign start stop swap transfer trigger
    """.split()
)
_READS_LAST: Final = "log"  # `git_log` reads, and `log_event` writes
# `get_or_make`, `fetch_and_store`, `check_in`: what comes second may be any verb.
_TWO_VERBS: Final = re.compile(r"\b(?:and|or|then)\b|\bcheck (?:in|out)\b")


def has_writing_verb(name: str) -> bool:
    """Whether a verb such as `send` stands in a tool's name."""
    words = _words(name)
    first = words[:2]  # of a compound the whole, and its first word
    return not (_WRITING - _NOUNS).isdisjoint(words) or not _NOUNS.isdisjoint(first)


def only_reads(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a tool's name and parameters say that it only reads.

    The name has a verb such as `get`, none such as `send`, and joins no two verbs. No parameter
    makes it write, as a flag `overwrite` would, or a path `save_to`.

    Args:
        name: In any form, such as `getFile` or `get_file`.
        parameters: JSON Schema of the arguments.
    """
    words = _words(name)
    reads = not _READING.isdisjoint(words) or words[-1:] == [_READS_LAST]
    if not reads or has_writing_verb(name) or _TWO_VERBS.search(" ".join(words)):
        return False
    return not any(
        _writes_by(each, schema) for each, schema in properties_of(parameters, parameters).items()
    )


def _writes_by(name: str, schema: Mapping[str, Any]) -> bool:
    return not (_WRITING if schema.get("type") == "boolean" else _WRITING - _NOUNS).isdisjoint(
        _words(name)
    )


def _words(name: str) -> list[str]:
    return [word.lower() for word in identifier_words(name)]
