"""Classify what a request asks for by its words, without a model.

The first verb that begins a clause decides, or that follows words such as "could you", "I want you
to" and "let's". So the verbs in "the build", "don't run" and "when I run" ask for nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from llm_common.context.mentions import extract_entities, head_and_tail
from llm_common.context.request import IntentMetadata, IntentType, UserIntent
from llm_common.ranking.cues import names_in


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _first_wins(words: Mapping[IntentType, str]) -> dict[str, IntentType]:
    """Map each word or phrase to its intent, the first one in the order of the specification.

    Phrases are written with underscores.
    """
    table: dict[str, IntentType] = {}
    for intent in IntentType:
        for word in words.get(intent, "").split():
            table.setdefault(word.replace("_", " "), intent)
    return table


VERBS: Final = _first_wins(
    {
        IntentType.CODE_WRITING: """
            write create implement add build make generate develop code scaffold introduce program
            draft insert define extend support handle enable allow integrate expose wire set_up
            setup hook_up come_up_with finish complete prototype register fill_in stub_out give_me
            provide produce prepare need_a need_an want_a want_an
        """,
        IntentType.CODE_DEBUGGING: """
            fix debug solve resolve repair troubleshoot diagnose investigate patch hotfix bisect
            reproduce correct unbreak track_down figure_out_why find_out_why hunt_down
            get_rid_of_the_error get_to_the_bottom_of
        """,
        IntentType.CODE_REFACTORING: """
            refactor restructure clean_up cleanup simplify optimize optimise rename extract improve
            modernize modernise rewrite reorganize reorganise decouple deduplicate dedupe inline
            move split convert migrate replace reduce streamline tidy tidy_up polish speed_up
            consolidate port change modify update remove delete drop rework shorten swap_out
            get_rid_of make_it make_this make_that break_up turn_this_into reformat
        """,
        IntentType.FILE_ANALYSIS: """
            explain analyze analyse understand describe summarize summarise review inspect examine
            read show look_at look_into look_through look_over walk_me_through walk_us_through
            walk_through go_through go_over take_me_through compare trace clarify interpret audit
            find find_out figure_out locate search look_for search_for look_up identify check
            check_for list count view explore study assess evaluate open scan verify what_does
            how_does what_did how_did take_a_look_at have_a_look_at
        """,
        IntentType.PROJECT_PLANNING: """
            plan design architect structure prioritize prioritise estimate brainstorm schedule
            propose outline strategize break_down think_through think_about map_out lay_out decide
            scope sketch_out
        """,
        IntentType.DOCUMENTATION: "document annotate write_up",
        IntentType.COMMAND_EXECUTION: """
            run rerun execute install uninstall reinstall deploy redeploy launch start restart stop
            kill commit push pull checkout check_out clone merge rebase stash build compile
            recompile test lint format ship release publish serve benchmark revert roll_back
            download upload upgrade mount spin_up bring_up tear_down shut_down reboot ping provision
            make_test make_build make_install make_clean make_all make_check make_lint make_run
            open_a_pull_request open_a_pr
            apt aptget brew bundle cargo chmod chown conda cp curl docker dockercompose dotnet gcc
            git gradle grep helm kubectl ls mkdir mv mvn mypy npm npx pip pip3 pnpm podman poetry
            psql pytest python python3 rm rsync ruff scp ssh sudo systemctl tar terraform tox touch
            uv wget yarn
        """,
    }
)
"""Verbs and phrases in their base form, and programs, by the intent that they express."""


CUES: Final = _first_wins(
    {
        IntentType.CODE_DEBUGGING: """
            bug bugs bugfix buggy error errors broken crash crashes crashed crashing exception
            exceptions traceback stacktrace segfault segfaults fail fails failed failing failure
            failures broke breaks regression deadlock hangs freezes leak leaks leaking glitch issue
            issues not_working not_work doesn't_work don't_work won't_work isn't_working
            aren't_working stopped_working stops_working won't_start won't_run won't_compile
            won't_load doesn't_start doesn't_run doesn't_compile doesn't_load wrong incorrect
            incorrectly bugged stuck
        """,
        IntentType.CODE_REFACTORING: """
            refactoring cleanup tech_debt technical_debt duplication duplicated
        """,
        IntentType.FILE_ANALYSIS: "don't_understand not_understand",
        IntentType.PROJECT_PLANNING: """
            plan plans planning roadmap milestone milestones sprint backlog architecture strategy
            timeline next_steps next_step priorities deadline deadlines
        """,
        IntentType.DOCUMENTATION: "docs documentation docstring docstrings readme changelog",
        IntentType.COMMAND_EXECUTION: "deployment rollback",
    }
)
"""Words that reveal the intent of a request without a verb."""

# Words between the beginning of a clause and its verb: "could you please", "I want you to".
_FILLERS: Final = _words("""
    can could would will shall may might do i'll we'll i'd we'd you'd couldn't wouldn't can't should
    must ought i we me us someone somebody anyone you let let's lets help please pls plz kindly go
    forget just now also first next finally again still already maybe perhaps well hey hi hello ok
    okay thanks sure alright quick instead there dear team folks all try want wants need needs like
    love wish going have to how why what tell mind start begin by
    """)
_MARKS: Final = frozenset(".!?;:,()\n")
_CLAUSE_STARTS: Final = _MARKS | _words("and or but then so plus")
_NEGATIONS: Final = _words("don't not never without cannot didn't won't")

CONFIDENCES: Final[Mapping[IntentType, float]] = {
    IntentType.CODE_WRITING: 0.8,
    IntentType.CODE_DEBUGGING: 0.85,
    IntentType.CODE_REFACTORING: 0.8,
    IntentType.FILE_ANALYSIS: 0.75,
    IntentType.CONVERSATIONAL: 0.6,
    IntentType.PROJECT_PLANNING: 0.7,
    IntentType.DOCUMENTATION: 0.75,
    IntentType.COMMAND_EXECUTION: 0.8,
}
"""Confidence by intent. Four are from the specification, section "Intent Classification"."""

_NEEDS_CODE_AND_PROJECT: Final = IntentMetadata(
    requires_code=True, requires_files=True, requires_project=True
)
_NEEDS_HISTORY: Final = IntentMetadata(requires_history=True)
_NEEDS: Final[Mapping[IntentType, IntentMetadata]] = {
    IntentType.CODE_WRITING: _NEEDS_CODE_AND_PROJECT,
    IntentType.CODE_DEBUGGING: IntentMetadata(
        requires_code=True, requires_files=True, requires_history=True
    ),
    IntentType.CODE_REFACTORING: _NEEDS_CODE_AND_PROJECT,
    IntentType.FILE_ANALYSIS: IntentMetadata(requires_files=True),
    IntentType.CONVERSATIONAL: _NEEDS_HISTORY,
    IntentType.PROJECT_PLANNING: IntentMetadata(requires_history=True, requires_project=True),
    IntentType.DOCUMENTATION: _NEEDS_CODE_AND_PROJECT,
    IntentType.COMMAND_EXECUTION: _NEEDS_HISTORY,
}

_QUESTIONS: Final = _words("? how why what which where who what's tell")
_CODE_NOUNS: Final = _words("""
    code codebase repo repository file files variable parameter argument interface algorithm loop
    implementation logic config configuration constructor implemented defined function class method
    script module test tests endpoint api parser component program app decorator regex query schema
    """)
# `head_and_tail` may have cut the fence that ends a block.
_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# A word, a name such as `src/app.py`, which is no verb, or a mark.
_TOKEN: Final = re.compile(r"[^\W_][\w'-]*(?:[./\\_]\w[\w'./\\-]*)?|[.!?;:,()\n]")
_NAME: Final = re.compile(r"[a-z][./\\_]\w")
_MAX_PHRASE_WORDS: Final = 7


def classify_intent(text: str, *, current_project: str | None = None) -> UserIntent:
    """Classify a request by its English words, and find its needs and entities. Pure.

    The first verb that begins a clause decides, else the first word such as "bug" or "roadmap".
    Otherwise a question about code is file analysis. Everything else is
    conversational, including empty texts and other languages. Words are compared whole. A word with
    two intents has the one that is first in the specification. Reads the first 4,000 and the last
    2,000 characters of a longer text.

    Args:
        text: The user's request.
        current_project: Name of the current project, whose memories are preferred.

    Returns:
        The intent, with a fixed confidence for each classification.

    Raises:
        TypeError: If `text` is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}; pass the user's request")
    words = _spoken_words(head_and_tail(text))
    intent = _first_verb(words)
    if intent is None:
        entries = [_entry(words, index) for index in range(len(words))]
        intent = next((CUES[entry] for entry in entries if entry in CUES), None)
    if intent is None:
        intent = IntentType.CONVERSATIONAL
        names_code = any(map(_NAME.search, words)) or not _CODE_NOUNS.isdisjoint(words)
        if names_code and not _QUESTIONS.isdisjoint(words):
            intent = IntentType.FILE_ANALYSIS
    return intent_of(text, intent, current_project=current_project)


def intent_of(
    text: str,
    classification: IntentType,
    *,
    current_project: str | None = None,
) -> UserIntent:
    """Build the intent of a request whose classification is known.

    Args:
        text: The user's request.
        classification: The kind of task.
        current_project: Name of the current project.
    """
    return UserIntent(
        text=text,
        classification=classification,
        confidence=CONFIDENCES[classification],
        entities=extract_entities(text),
        metadata=_NEEDS[classification].model_copy(update={"current_project": current_project}),
    )


def _spoken_words(text: str) -> list[str]:
    """Return the words in lower case and the marks between them, without code and quotes."""
    text = _BLOCK.sub("\n", text.replace("\u2019", "'"))
    spoken: list[str] = []
    end = 0
    for name in names_in(text):
        if name.kind in ("url", "quoted"):
            spoken.append(text[end : name.start])
            end = name.end
    # Without hyphens, since users write `set-up` and `setup`.
    return _TOKEN.findall(" . ".join([*spoken, text[end:]]).lower().replace("-", ""))


def _entry(words: Sequence[str], index: int) -> str:
    """Return the longest phrase of the lexicon that begins at that word, else the word."""
    for length in range(_MAX_PHRASE_WORDS, 1, -1):
        phrase = " ".join(words[index : index + length])
        if phrase in VERBS or phrase in CUES:
            return phrase
    return words[index]


def _first_verb(words: Sequence[str]) -> IntentType | None:
    """Return the intent of the first verb that begins a clause."""
    can_begin, is_negated = True, False
    for index, word in enumerate(words):
        entry = _entry(words, index)
        if can_begin and entry in VERBS:
            return VERBS[entry]
        # Up to the next mark, a negation covers all verbs: "I don't want you to fix it".
        is_negated = word in _NEGATIONS or (is_negated and word not in _MARKS)
        is_filler = can_begin and (word in _FILLERS or word.endswith("ly"))
        can_begin = not is_negated and (word in _CLAUSE_STARTS or is_filler)
    return None
