"""Classify what a request asks for by its words, without a model.

The first verb that asks for something decides. A request is converted to a string of roles, one
letter a word, and regular expressions find such verbs in it. They begin a clause, or follow "could
you", "I want you to", "let's" and the like. The verbs in "the build", "a fix", "don't run" and
"when I run" ask for nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from llm_common.context.mentions import QUOTED, URL, extract_entities, head_and_tail
from llm_common.context.request import IntentMetadata, IntentType, UserIntent


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
        """,
    }
)
"""Verbs and phrases in their base form, by the intent that they express."""


def _gerunds() -> dict[str, str]:
    """Return the verbs by their forms in -ing, some of which no verb has."""
    gerunds: dict[str, str] = {}
    for verb in VERBS:
        if " " not in verb:
            # No simple rule decides whether the last letter doubles, so both forms are listed.
            gerunds[verb.removesuffix("e") + "ing"] = verb
            gerunds[verb + verb[-1] + "ing"] = verb
    return gerunds


_GERUNDS: Final = _gerunds()

# Without hyphens, which `_read` removes.
_COMMANDS: Final = _words("""
    apt aptget brew bundle cargo chmod chown conda cp curl docker dockercompose dotnet gcc git
    gradle grep helm kubectl ls mkdir mv mvn mypy npm npx pip pip3 pnpm podman poetry psql pytest
    python python3 rm rsync ruff scp ssh sudo systemctl tar terraform tox touch uv wget yarn
    """)
"""Programs whose name alone asks to run them."""

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

_OBJECTS: Final = _first_wins(
    {
        IntentType.CODE_DEBUGGING: """
            bug bugs error errors leak leaks problem problems issue issues cause crash crashes
            failure failures regression culprit mistake mistakes
        """,
        IntentType.FILE_ANALYSIS: "summary overview explanation walkthrough rundown",
        IntentType.PROJECT_PLANNING: """
            plan roadmap timeline milestones schedule backlog strategy proposal estimate estimates
            architecture agenda
        """,
        IntentType.DOCUMENTATION: """
            docs doc document documentation docstring docstrings readme changelog comment comments
            guide tutorial manual faq notes handbook glossary
        """,
        IntentType.COMMAND_EXECUTION: """
            branch tag commit release image container wheel binary virtualenv venv dependencies
            packages
        """,
        IntentType.CODE_WRITING: """
            function class method script module test tests endpoint api parser component program app
            application decorator regex query schema migration hook handler middleware client server
            cli tool library package service page form button table validator helper wrapper fixture
        """,
    }
)
"""Objects that decide the intent of a verb such as "write" or "update"."""

_REFINED: Final[tuple[tuple[str, str], ...]] = (
    ("create build make generate", "project_planning documentation command_execution"),
    (
        "write add draft insert extend develop prepare produce provide",
        "project_planning documentation",
    ),
    (
        "improve rewrite rework polish restructure reorganize reorganise expand",
        "project_planning documentation",
    ),
    ("change modify simplify", "project_planning documentation"),
    ("update", "project_planning documentation command_execution"),
    ("find locate identify spot look_for search_for check_for hunt", "code_debugging"),
    ("give_me need_a need_an want_a want_an", " ".join(IntentType)),
)

_REFINED_BY_OBJECT: Final[Mapping[str, frozenset[IntentType]]] = {
    phrase.replace("_", " "): frozenset(map(IntentType, intents.split()))
    for phrases, intents in _REFINED
    for phrase in phrases.split()
}
"""The intents that an object may give each verb. "Write the docs" asks for documentation."""

_NOTHING_WITHOUT_OBJECT: Final = frozenset({"give me", "need a", "need an", "want a", "want an"})
"""Verbs that express an intent only through their object."""

_CODE_NOUNS: Final = _words("""
    code codebase repo repository file variable parameter argument interface algorithm loop
    implementation logic config configuration constructor implemented defined
    """) | {noun for noun, intent in _OBJECTS.items() if intent is IntentType.CODE_WRITING}
"""Nouns of a question about code, in the singular."""

_BETTER: Final = _words(
    "faster cleaner simpler smaller shorter safer better nicer easier clearer leaner more less"
)
"""Words that make "make" a request to improve existing code."""

_OBJECT_ENDS: Final = _words("""
    for of to in into on from with by about that which who when where so and or but then as at via
    using before after if because between across under called named explaining describing covering
    showing is are please
    """)
"""Words that end the object of a verb."""

_PLACES: Final = frozenset({"to", "in", "into", "on"})
"""Object ends that introduce a target, as in "add a section to the readme"."""

_WANTS: Final = _words("""
    want wants need needs like love wish going have got you me us how time sure possible way ways
    goal task job ready required supposed order where able remember forget hope
    """)
"""Words after which "to" and a verb ask for something."""

_WORDS_BY_ROLE: Final[Mapping[str, str]] = {
    "J": "and or but then so plus",
    "M": """
        can could would will shall may might do i'll we'll i'd we'd you'd couldn't wouldn't can't
    """,
    "U": "should must ought",
    "P": "i we me us someone somebody anyone",
    "Y": "you",
    "L": "let let's lets help please pls plz kindly go forget make_sure be_sure",
    "F": """
        just now also first next finally again still already maybe perhaps well hey hi hello ok okay
        thanks sure alright quick once_more instead there dear team folks all try
    """,
    "S": "when whenever if after before because since while once unless until although",
    "N": "don't not never without cannot didn't won't",
    "Z": """
        is was are were has had isn't wasn't aren't does doesn't did fails fail failed breaks broke
        crashes crashed keeps takes took looks looked seems works worked needs hangs went goes gets
        got passed passes finished
    """,
    "O": "of",
    "D": "the a an this that these those my your our his her its their some any no every each",
    "K": "how why what which where who what's tell",
    "Q": "mind consider by suggest recommend about start_by begin_by start_with begin_with",
}

_ROLES: Final = {
    word.replace("_", " "): role for role, words in _WORDS_BY_ROLE.items() for word in words.split()
}
"""The role of a word or phrase in a sentence, as a letter."""


def _by_first_word(*tables: Iterable[str]) -> dict[str, list[str]]:
    """Index the words and phrases of the tables by their first word, the longest first."""
    phrases: dict[str, list[str]] = {}
    for phrase in sorted(set(chain(*tables)), key=lambda phrase: (-phrase.count(" "), phrase)):
        phrases.setdefault(phrase.split()[0], []).append(phrase)
    return phrases


_PHRASES: Final = _by_first_word(VERBS, CUES, _ROLES, _OBJECTS)


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

# `head_and_tail` may have cut the fence that ends a block.
_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CHUNK: Final = re.compile(r"\n|[^\s(),;]+|[(),;]")
_WORD: Final = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
_RAISED: Final = re.compile(r"(?:[A-Z][a-z0-9]+)+(?:Error|Exception)")
_NAMED: Final = re.compile(r"(?=.*[A-Za-z])(?:[a-z]++[A-Z]|[^._/\\]*+[._/\\])")
_PROSE_FILE: Final = re.compile(r".*\.(?:md|mdx|rst|adoc)", re.IGNORECASE)
_WRAPPING: Final = "*_#>[]{}<\"'`\u201c\u201d\u2018\u2019"
_ENDS: Final = ".!?:;"
_BREAK, _PAUSE, _QUESTION, _NAME, _OTHER = ".", ",", "?", "@", "0"
_MARKS: Final = {_BREAK: "B", _QUESTION: "B", _PAUSE: "C"}
_MAX_OBJECT_WORDS: Final = 12
_DENIALS: Final = frozenset({"no", "without", "zero"})

# `_WORDS_BY_ROLE` lists the letters of most words. V, G and R are verbs, their forms in -ing, and
# programs. W is "need a" and the like. T is a "to" that asks for something, t is any other "to". x
# is a word that does not count, and X an unknown one. Repetitions are bounded, so that matching
# takes linear time.
_SUBORDINATE: Final = re.compile(r"S(?!YM|[MU])[^BC]*")  # when I run, but not: if you could run
_NEGATED: Final = re.compile(r"N[XFMUPYTt]{0,3}[VWG]")  # don't ever run
_NOUN: Final = re.compile(r"[VWR](?=[XVG]?Z|O)")  # the build fails, a review of
_REQUEST: Final = re.compile(
    # fix; could you please fix; how do I fix
    r"(?:\A|[BCJ])F{0,6}(?:[FKL]{0,6}[MU][FLPYMU]{0,6})?[FL]{0,6}[VWR]"
    r"|[PY]F{0,6}U[FLPY]{0,6}[VW]"  # we should fix
    r"|L[FPY]{0,6}[VW]"  # let me fix
    r"|TF{0,6}[VW]"  # I want you to fix
    r"|[PY][FMU]{0,6}W"  # I need a fix
    r"|Qx?F{0,6}G"  # would you mind fixing; start by fixing
)
_ANY_VERB: Final = re.compile(r"(?:\A|[BCJLTtMUSQ])F{0,6}[VW]|(?:\A|[BCJS])F{0,6}G")


def classify_intent(text: str, *, current_project: str | None = None) -> UserIntent:
    """Classify a request by its English words, and find its needs and entities. Pure.

    The first of these decides: a verb that asks for something, a word such as "bug" or "roadmap",
    any other verb. Otherwise a question about code is file analysis. Everything else is
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
    words = list(_spoken_words(head_and_tail(text)))
    # What is negated, a noun ("the build fails") or subordinate ("when I run") asks for nothing.
    roles = _NOUN.sub("x", _NEGATED.sub(_blanked, _roles(words)))
    main_clauses = _SUBORDINATE.sub(_blanked, roles)
    intent = (
        _verb_intent(words, _REQUEST.search(main_clauses))
        or _first_cue(words)
        or _verb_intent(words, _ANY_VERB.search(roles))
    )
    if intent is None:
        asks_about_code = _asks_about_code(words)
        intent = IntentType.FILE_ANALYSIS if asks_about_code else IntentType.CONVERSATIONAL
    return intent_of(text, intent, current_project=current_project)


def intent_of(
    text: str,
    classification: IntentType,
    *,
    confidence: float | None = None,
    current_project: str | None = None,
) -> UserIntent:
    """Build the intent of a request whose classification is known.

    Args:
        text: The user's request.
        classification: The kind of task.
        confidence: Within [0, 1]. None uses `CONFIDENCES`.
        current_project: Name of the current project.
    """
    if confidence is None:
        confidence = CONFIDENCES[classification]
    return UserIntent(
        text=text,
        classification=classification,
        confidence=confidence,
        entities=extract_entities(text),
        metadata=_NEEDS[classification].model_copy(update={"current_project": current_project}),
    )


def _spoken_words(text: str) -> Iterator[str]:
    """Yield the words in lower case, and the marks between them.

    Blocks of code are skipped. A URL, a call and a name in backquotes become names, and a quoted
    phrase becomes an unknown word.
    """
    # A word with a dot is read as a name, so `a.b` replaces URLs and code.
    text = URL.sub(" a.b ", _BLOCK.sub("\n", text.replace("\u2019", "'").replace("()", ".x")))
    plain = QUOTED.sub(lambda match: f" {'a.b' if match['code'] else _OTHER} ", text)
    for chunk in _CHUNK.findall(plain):
        if chunk in "(),;\n":
            yield _PAUSE if chunk == "," else _BREAK
            continue
        core = chunk.strip(_WRAPPING)
        word = core.rstrip(_ENDS + _WRAPPING)
        if word:
            yield from _read(word)
        if word != core or not word:
            yield _QUESTION if "?" in core[len(word) :] else _BREAK


def _read(word: str) -> list[str]:
    """Return a word in lower case, or its parts, or the mark or word that replaces it."""
    # The class of an exception and a prose file show the intent as well as a cue does.
    if _RAISED.fullmatch(word):
        return ["error"]
    if _PROSE_FILE.fullmatch(word):
        return ["docs"]
    parts: list[str] = []
    for part in word.split("/"):
        # Without hyphens, since users write `set-up` and `setup`.
        parts.append(part.lower().replace("-", "") if _WORD.fullmatch(part) else _OTHER)
    return [_NAME] if _OTHER in parts and _NAMED.match(word) else parts


def _roles(words: Sequence[str]) -> str:
    """Return one letter a word: the role of a word or of a phrase, with x for its other words."""
    roles = ""
    while len(roles) < len(words):
        index = len(roles)  # the same for letters and words, so that a match locates a word
        entry = _entry(words, index)
        roles += _role(words, index, entry) + "x" * entry.count(" ")
    return roles


def _role(words: Sequence[str], index: int, entry: str) -> str:
    word = words[index]
    if word == "to":
        return "T" if index and words[index - 1] in _WANTS else "t"
    if entry in _NOTHING_WITHOUT_OBJECT:
        return "W" if _intent_of_object(words, index, entry) else "X"
    if entry in VERBS:
        return "V"
    if word in _GERUNDS:
        return "G"
    if word in _COMMANDS:
        return "R"
    # Most adverbs end in -ly, and may come before a verb.
    return _MARKS.get(word) or _ROLES.get(entry) or ("F" if word.endswith("ly") else "X")


def _blanked(match: re.Match[str]) -> str:
    return "x" * len(match.group())


def _entry(words: Sequence[str], index: int) -> str:
    """Return the longest phrase of the lexicon that begins at that word, else the word."""
    for phrase in _PHRASES.get(words[index], ()):
        if " ".join(words[index : index + phrase.count(" ") + 1]) == phrase:
            return phrase
    return words[index]


def _verb_intent(words: Sequence[str], match: re.Match[str] | None) -> IntentType | None:
    """Return the intent of the verb at the end of a match, or of the verb's object."""
    if match is None:
        return None
    index = match.end() - 1
    entry = _entry(words, index)
    if entry not in VERBS:  # a form in -ing, or a program such as `git`
        entry = _GERUNDS.get(entry, entry)
    following = words[index + 1 : index + 1 + _MAX_OBJECT_WORDS]
    intent = _intent_of_object(words, index, entry)
    if intent is None:
        intent = VERBS.get(entry, IntentType.COMMAND_EXECUTION)
    if entry == "make" and intent is IntentType.CODE_WRITING and not _BETTER.isdisjoint(following):
        return IntentType.CODE_REFACTORING
    return intent


def _intent_of_object(words: Sequence[str], index: int, verb: str) -> IntentType | None:
    """Return the intent of the object of a verb, if it has one.

    The object ends before a word such as "to", and its last noun counts. A target may follow: "add
    a section to the readme" is about the readme.
    """
    allowed = _REFINED_BY_OBJECT.get(verb)
    if allowed is None:
        return None
    start = index + verb.count(" ") + 1
    head, is_object = "", True
    # The last mark ends an object that has no end within the limit.
    for word in [*words[start : start + _MAX_OBJECT_WORDS], _BREAK]:
        if word not in _MARKS and word not in _OBJECT_ENDS:
            head = word
            continue
        intent = _OBJECTS.get(head)
        # Of targets, only documents count: `update the port in the image` runs no command.
        if intent in allowed and (is_object or intent is IntentType.DOCUMENTATION):
            return intent
        if word not in _PLACES:
            return None
        head, is_object = "", False
    return None


def _first_cue(words: Sequence[str]) -> IntentType | None:
    for index in range(len(words)):
        intent = CUES.get(_entry(words, index))
        # `no errors` and `zero failures` report no fault.
        if intent is not None and words[max(0, index - 1)] not in _DENIALS:
            return intent
    return None


def _asks_about_code(words: Sequence[str]) -> bool:
    is_question = _QUESTION in words or "K" in map(_ROLES.get, words)
    singulars = {word.removesuffix("s") for word in words}
    return is_question and not {_NAME, *_CODE_NOUNS}.isdisjoint(singulars.union(words))
