"""The public names of `llm_common.context`."""

import llm_common.context as face


def test_the_names_of_the_specification_are_exported() -> None:
    for name in (
        "ContextBundle",
        "ContextSelector",
        "DataPoolSnapshot",
        "allocate_budget",
        "classify_intent",
        "score_context_file",
        "score_conversation_turn",
        "score_memory_snippet",
        "select_and_pack_context",
    ):
        assert name in face.__all__
