"""The English words that tell what is asked for; `intent` holds the grammar that reads them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from llm_common.context.request import IntentType

__all__ = [
    "BETTER",
    "CODE_NOUNS",
    "COMMANDS",
    "CUES",
    "GERUNDS",
    "NOTHING_WITHOUT_OBJECT",
    "OBJECTS",
    "OBJECT_ENDS",
    "PHRASES",
    "PLACES",
    "REFINED_BY_OBJECT",
    "ROLES",
    "VERBS",
    "WANTS",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _first_wins(words: Mapping[IntentType, str]) -> dict[str, IntentType]:
    """Each word or phrase with its intent; one that stands in two lists belongs to the first, as in the specification.

    A phrase is written with underscores.
    """
    table: dict[str, IntentType] = {}
    for intent in IntentType:
        for word in words.get(intent, "").split():
            table.setdefault(word.replace("_", " "), intent)
    return table


VERBS: Final = _first_wins(
    {
        IntentType.CODE_WRITING: """
            write create implement add build make generate develop code scaffold introduce program draft insert define
            extend support handle enable allow integrate expose wire set_up setup hook_up come_up_with finish complete
            prototype register fill_in stub_out give_me provide produce prepare need_a need_an want_a want_an
        """,
        IntentType.CODE_DEBUGGING: """
            fix debug solve resolve repair troubleshoot diagnose investigate patch hotfix bisect reproduce correct
            unbreak track_down figure_out_why find_out_why hunt_down get_rid_of_the_error get_to_the_bottom_of
        """,
        IntentType.CODE_REFACTORING: """
            refactor restructure clean_up cleanup simplify optimize optimise rename extract improve modernize modernise
            rewrite reorganize reorganise decouple deduplicate dedupe inline move split convert migrate replace reduce
            streamline tidy tidy_up polish speed_up consolidate port change modify update remove delete drop rework
            shorten swap_out get_rid_of make_it make_this make_that break_up turn_this_into reformat
        """,
        IntentType.FILE_ANALYSIS: """
            explain analyze analyse understand describe summarize summarise review inspect examine read show look_at
            look_into look_through look_over walk_me_through walk_us_through walk_through go_through go_over
            take_me_through compare trace clarify interpret audit find find_out figure_out locate search look_for
            search_for look_up identify check check_for list count view explore study assess evaluate open scan verify
            what_does how_does what_did how_did take_a_look_at have_a_look_at
        """,
        IntentType.PROJECT_PLANNING: """
            plan design architect structure prioritize prioritise estimate brainstorm schedule propose outline
            strategize break_down think_through think_about map_out lay_out decide scope sketch_out
        """,
        IntentType.DOCUMENTATION: "document annotate write_up",
        IntentType.COMMAND_EXECUTION: """
            run rerun execute install uninstall reinstall deploy redeploy launch start restart stop kill commit push
            pull checkout check_out clone merge rebase stash build compile recompile test lint format ship release
            publish serve benchmark revert roll_back download upload upgrade mount spin_up bring_up tear_down shut_down
            reboot ping provision make_test make_build make_install make_clean make_all make_check make_lint make_run
            open_a_pull_request open_a_pr
        """,
    }
)
"""Verbs and phrases in their base form, by what they ask for."""


def _gerunds(verbs: Iterable[str]) -> Iterator[tuple[str, str]]:
    for verb in verbs:
        if " " not in verb:
            yield verb.removesuffix("e") + "ing", verb
            yield verb + verb[-1] + "ing", verb


GERUNDS: Final = dict(_gerunds(VERBS))
"""The verbs by their forms in -ing, with some that no verb has."""

COMMANDS: Final = _words("""
    apt aptget brew bundle cargo chmod chown conda cp curl docker dockercompose dotnet gcc git gradle grep helm
    kubectl ls mkdir mv mvn mypy npm npx pip pip3 pnpm podman poetry psql pytest python python3 rm rsync ruff scp ssh
    sudo systemctl tar terraform tox touch uv wget yarn
    """)
"""Programs that are called by their names."""

CUES: Final = _first_wins(
    {
        IntentType.CODE_DEBUGGING: """
            bug bugs bugfix buggy error errors broken crash crashes crashed crashing exception exceptions traceback
            stacktrace segfault segfaults fail fails failed failing failure failures broke breaks regression deadlock
            hangs freezes leak leaks leaking glitch issue issues not_working not_work doesn't_work don't_work won't_work
            isn't_working aren't_working stopped_working stops_working won't_start won't_run won't_compile
            won't_load doesn't_start doesn't_run doesn't_compile doesn't_load wrong incorrect incorrectly bugged stuck
        """,
        IntentType.CODE_REFACTORING: "refactoring cleanup tech_debt technical_debt duplication duplicated",
        IntentType.FILE_ANALYSIS: "don't_understand not_understand",
        IntentType.PROJECT_PLANNING: """
            plan plans planning roadmap milestone milestones sprint backlog architecture strategy timeline next_steps
            next_step priorities deadline deadlines
        """,
        IntentType.DOCUMENTATION: "docs documentation docstring docstrings readme changelog",
        IntentType.COMMAND_EXECUTION: "deployment rollback",
    }
)
"""Words that tell the matter of a request without a verb."""

OBJECTS: Final = _first_wins(
    {
        IntentType.CODE_DEBUGGING: """
            bug bugs error errors leak leaks problem problems issue issues cause crash crashes failure failures
            regression culprit mistake mistakes
        """,
        IntentType.FILE_ANALYSIS: "summary overview explanation walkthrough rundown",
        IntentType.PROJECT_PLANNING: """
            plan roadmap timeline milestones schedule backlog strategy proposal estimate estimates architecture agenda
        """,
        IntentType.DOCUMENTATION: """
            docs doc document documentation docstring docstrings readme changelog comment comments guide tutorial manual
            faq notes handbook glossary
        """,
        IntentType.COMMAND_EXECUTION: """
            branch tag commit release image container wheel binary virtualenv venv dependencies packages
        """,
        IntentType.CODE_WRITING: """
            function class method script module test tests endpoint api parser component program app application
            decorator regex query schema migration hook handler middleware client server cli tool library package
            service page form button table validator helper wrapper fixture
        """,
    }
)
"""What a verb is about, where that tells more than the verb."""

_REFINED: Final[tuple[tuple[str, str], ...]] = (
    ("create build make generate", "project_planning documentation command_execution"),
    ("write add draft insert extend develop prepare produce provide", "project_planning documentation"),
    ("improve rewrite rework polish restructure reorganize reorganise expand", "project_planning documentation"),
    ("change modify simplify", "project_planning documentation"),
    ("update", "project_planning documentation command_execution"),
    ("find locate identify spot look_for search_for check_for hunt", "code_debugging"),
    ("give_me need_a need_an want_a want_an", " ".join(IntentType)),
)

REFINED_BY_OBJECT: Final[Mapping[str, frozenset[IntentType]]] = {
    verb.replace("_", " "): frozenset(map(IntentType, intents.split()))
    for verbs, intents in _REFINED
    for verb in verbs.split()
}
"""The intents that the object of a verb may turn it to: who writes documentation wants no code written."""

NOTHING_WITHOUT_OBJECT: Final = frozenset({"give me", "need a", "need an", "want a", "want an"})
"""Verbs that ask for something of ours only if their object does."""

CODE_NOUNS: Final = _words("""
    code codebase repo repository file variable parameter argument interface algorithm loop implementation logic
    config configuration constructor implemented defined
    """) | {noun for noun, intent in OBJECTS.items() if intent is IntentType.CODE_WRITING}
"""What a question about code is about, in the singular."""

BETTER: Final = _words("faster cleaner simpler smaller shorter safer better nicer easier clearer leaner more less")
"""After "make" they ask for a change of what there is."""

OBJECT_ENDS: Final = _words("""
    for of to in into on from with by about that which who when where so and or but then as at via using before after
    if because between across under called named explaining describing covering showing is are please
    """)
"""Words that end the object of a verb."""

PLACES: Final = frozenset({"to", "in", "into", "on"})
"""Of these the ones that a place follows: "add a section to the readme"."""

WANTS: Final = _words("""
    want wants need needs like love wish going have got you me us how time sure possible way ways goal task job ready
    required supposed order where able remember forget hope
    """)
"""Words after which "to" and a verb ask for something."""

_ROLES: Final[Mapping[str, str]] = {
    "J": "and or but then so plus",
    "M": "can could would will shall may might do i'll we'll i'd we'd you'd couldn't wouldn't can't",
    "U": "should must ought",
    "P": "i we me us someone somebody anyone",
    "Y": "you",
    "L": "let let's lets help please pls plz kindly go forget make_sure be_sure",
    "F": """
        just now also first next finally again still already maybe perhaps well hey hi hello ok okay thanks sure alright
        quick once_more instead there dear team folks all try
    """,
    "S": "when whenever if after before because since while once unless until although",
    "N": "don't not never without cannot didn't won't",
    "Z": """
        is was are were has had isn't wasn't aren't does doesn't did fails fail failed breaks broke crashes crashed
        keeps takes took looks looked seems works worked needs hangs went goes gets got passed passes finished
    """,
    "O": "of",
    "D": "the a an this that these those my your our his her its their some any no every each",
    "K": "how why what which where who what's tell",
    "Q": "mind consider by suggest recommend about start_by begin_by start_with begin_with",
}

ROLES: Final = {word.replace("_", " "): role for role, words in _ROLES.items() for word in words.split()}
"""What a word or phrase does in a sentence, as the letter that stands for it in `intent`."""


def _by_first_word(*tables: Iterable[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
    phrases = sorted(
        {tuple(entry.split()) for table in tables for entry in table}, key=lambda words: (-len(words), words)
    )
    return {first: tuple(words for words in phrases if words[0] == first) for first in {words[0] for words in phrases}}


PHRASES: Final = _by_first_word(VERBS, CUES, ROLES, OBJECTS)
"""Every word and phrase of the tables by its first word, the longest first."""
