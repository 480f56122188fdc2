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


@pytest.mark.parametrize(
    ("before", "summary", "lost", "counted"),
    [
        pytest.param([said("user", RULE)], "The user works on orders.", [RULE], 1, id="dropped"),
        *(
            pytest.param([said("user", RULE)], summary, [], 1, id=f"kept {words}")
            for words, summary in {
                "word for word": f"Summary. {RULE}",
                "in capitals": f"Summary.\n\n{RULE.upper()}",
                "in two paragraphs": RULE.replace("to the", "to\n\nthe"),
                "in other words": (
                    "- The user wants us to never commit to branch main.\n- He works on orders."
                ),
            }.items()
        ),
        pytest.param(
            [said("user", RULE)],
            "Never mind the commit.\n\nThe branch was main.",
            [RULE],
            1,
            id="its words in different paragraphs",
        ),
        pytest.param(
            [said("user", f"{RULE} From now on answer in French.")],
            f"Summary: {RULE}",
            ["From now on answer in French."],
            2,
            id="one of two sentences of a line",
        ),
        pytest.param(
            [said("user", "For the rest of this session. Use metric units only.")],
            "Summary.",
            ["Use metric units only."],
            1,
            id="a sentence that only says how long another holds",
        ),
        pytest.param(
            [said("assistant", RULE), *call_and_output(1, "run", {"path": "rules"}, RULE)],
            "Summary.",
            [],
            0,
            id="words of the model and of a tool",
        ),
    ],
)
def test_the_users_words_that_a_summary_lacks_are_dropped_t_20(
    before: list[Any], summary: str, lost: list[str], counted: int
) -> None:
    losses_of_summary = dropped(before, summary)
    assert (losses_of_summary.said, losses_of_summary.said_before) == (lost, counted)


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
