"""What a compaction left out, by the words of the user and the arguments of later calls.

`losses` is no public name. The command that uses it reads files, and these cases are messages.
"""

from typing import Any

import pytest

from llm_common.history import losses, read_messages
from tests.history.conversations import call_and_output, said

RULE = "From now on never commit to the branch main."


def calling(**args: object) -> dict[str, Any]:
    return call_and_output(1, "run", args, "")[0]


def dropped(before: list[Any], after: str, later: list[Any] | None = None) -> Any:
    return losses(
        read_messages(before),
        read_messages([said("user", after)]),
        read_messages(later or [said("user", "Go on.")]),
    )


def test_a_rule_that_the_summary_lacks_is_dropped_t_20() -> None:
    lost = dropped([said("user", RULE)], "The user works on orders.")
    assert (lost.said, lost.said_before) == ([RULE], 1)


@pytest.mark.parametrize(
    "summary",
    [
        f"Summary. {RULE}",
        f"Summary.\n\n{RULE.upper()}",
        RULE.replace("to the", "to\n\nthe"),
        "- The user wants us to never commit to branch main.\n- He works on orders.",
    ],
    ids=["word for word", "capitals", "two paragraphs", "other words"],
)
def test_a_rule_that_the_summary_has_is_kept_t_20(summary: str) -> None:
    lost = dropped([said("user", RULE)], summary)
    assert (lost.said, lost.said_before) == ([], 1)


def test_words_in_different_paragraphs_do_not_keep_a_rule_t_20() -> None:
    lost = dropped([said("user", RULE)], "Never mind the commit.\n\nThe branch was main.")
    assert lost.said == [RULE]


def test_sentences_of_one_line_are_kept_or_dropped_alone_t_20() -> None:
    lost = dropped([said("user", f"{RULE} From now on answer in French.")], f"Summary: {RULE}")
    assert (lost.said, lost.said_before) == (["From now on answer in French."], 2)


def test_a_sentence_that_only_says_how_long_another_holds_is_not_named_t_20() -> None:
    lost = dropped(
        [said("user", "For the rest of this session. Use metric units only.")], "Summary."
    )
    assert lost.said == ["Use metric units only."]


def test_words_of_the_model_and_of_tools_are_not_the_users_t_20() -> None:
    before = [
        said("assistant", RULE),
        *call_and_output(1, "run", {"path": "rules"}, RULE),
    ]
    assert dropped(before, "Summary.").said_before == 0


@pytest.mark.parametrize(
    ("args", "values"),
    [
        ({"order": "ORD-88213"}, ["ORD-88213"]),
        ({"command": f"{'cat the file ' * 9}src/orders/load.py"}, ["src/orders/load.py"]),
        ({"command": ["bash", "-lc", f"{'cat the file ' * 9}src/orders/load.py"]}, ["src/orders/load.py"]),
        ({"filter": {"amount": 118.95}}, ["118.95"]),
        ({"command": "cat 2>/dev/null"}, []),
        ({"state": "in_progress"}, []),
        ({"state": "refunded"}, []),
        ({"content": "a\n\n\n# ORD-88213"}, []),
        ({"timeout": 30_000}, []),
        ({"command": "echo x</main>"}, []),
        ({"order": "ORD-7"}, []),
        ({"order": "ORD-8821"}, []),
        ({"order": "ORD-1"}, []),
    ],
    ids=["id", "command", "list", "number", "null", "choice", "word", "written", "limit", "tag", "kept", "part of another", "unknown"],
)  # fmt: skip
def test_values_that_later_calls_need_and_the_prompt_has_not_are_dropped_t_20(
    args: dict[str, Any], values: list[str]
) -> None:
    before = [
        said("user", "Look at ORD-88213 and ORD-7 in src/orders/load.py: 118.95 francs."),
        said(
            "user", "It is in_progress or refunded. Errors are in /dev/null for 30000 ms. </main>"
        ),
    ]
    assert dropped(before, "The user asked about ORD-7.", [calling(**args)]).values == values


def test_a_value_of_a_later_call_that_was_kept_counts_as_needed_t_20() -> None:
    lost = dropped(
        [said("user", "Look at ORD-88213.")], "See ORD-88213.", [calling(order="ORD-88213")]
    )
    assert (lost.values, lost.needed) == ([], 1)


@pytest.mark.parametrize("longer", ["ORD-882130", "AORD-88213", "ORD-88213ß"])
def test_a_value_counts_behind_a_longer_one_that_has_it_t_20(longer: str) -> None:
    later = [calling(order="ORD-88213")]
    assert dropped([said("user", f"See {longer}.")], "Summary.", later).needed == 0
    assert dropped([said("user", f"See {longer}, then ORD-88213.")], "Summary.", later).needed == 1
