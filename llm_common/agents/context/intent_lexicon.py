"""The English words that tell what is asked for; `intent` holds the grammar that reads them."""

from collections.abc import Mapping
from typing import Final

from llm_common.agents.context.request import IntentType

__all__ = ["COMMANDS", "CUES", "NOTHING_WITHOUT_OBJECT", "OBJECTS", "REFINED_BY_OBJECT", "VERBS"]


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
            look_into look_through look_over walk_me_through walk_us_through walk_through go_through go_over take_me_through
            compare trace clarify interpret audit find find_out figure_out locate search look_for search_for look_up identify check check_for
            list count view explore study assess evaluate open scan verify what_does how_does what_did how_did
        """,
        IntentType.PROJECT_PLANNING: """
            plan design architect prioritize prioritise estimate brainstorm schedule propose outline strategize
            break_down think_through think_about map_out lay_out decide scope sketch_out
        """,
        IntentType.DOCUMENTATION: "document annotate write_up",
        IntentType.COMMAND_EXECUTION: """
            run rerun execute install uninstall reinstall deploy redeploy launch start restart stop kill commit push
            pull checkout check_out clone merge rebase stash build compile recompile test lint format ship release
            publish serve benchmark revert roll_back download upload upgrade mount spin_up bring_up tear_down shut_down
            reboot ping provision
        """,
    }
)
"""Verbs and phrases in their base form, by what they ask for."""

COMMANDS: Final = frozenset(
    """
    apt apt-get brew bundle cargo chmod chown conda cp curl docker docker-compose dotnet gcc git gradle grep helm
    kubectl ls mkdir mv mvn mypy npm npx pip pip3 pnpm podman poetry psql pytest python python3 rm rsync ruff scp ssh
    sudo systemctl tar terraform tox touch uv wget yarn
    """.split()  # noqa: SIM905 - one paragraph, since a list would take a page
)
"""Programs that are called by their names."""

CUES: Final = _first_wins(
    {
        IntentType.CODE_DEBUGGING: """
            bug bugs bugfix buggy error errors broken crash crashes crashed crashing exception exceptions traceback
            stacktrace segfault segfaults fail fails failed failing failure failures broke breaks regression deadlock
            hangs freezes leak leaks leaking glitch issue issues not_working not_work doesn't_work don't_work won't_work
            isn't_working aren't_working stopped_working stops_working wrong incorrect incorrectly bugged stuck
        """,
        IntentType.CODE_REFACTORING: "refactoring cleanup tech_debt technical_debt duplication duplicated",
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
            docs doc document documentation docstring docstrings readme changelog comment comments guide tutorial manual faq
            handbook glossary
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
