"""The same call again: a line, what changed, or a preview."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.quality_reruns import MAX_SHARE, run
from llm_common.agents import (
    InMemoryContextPointerStore,
    Offloaded,
    OffloadPolicy,
    SavedResults,
)
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.session import Session
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy
from llm_common.pointers.records import LockedRecords
from llm_common.pointers.store import ContextPointerStore
from llm_common.storage import MemoryBlobStore
from tests.loop_cpu import longest_tick_s

COUNTER = DefaultCounter()
ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(1_000)]
CHANGED = copy.deepcopy(ROWS)
CHANGED[7]["stock"] = 0
TEXT = "\n".join(f"line {number} of the log" for number in range(2_000))
QUESTION = {"role": "user", "content": "Which parts are there?"}


class Conversation:
    """A session with the messages of a plain loop."""

    first: Offloaded

    def __init__(
        self, session: Session | None = None, *, tool: str = "list_parts", **config: Any
    ) -> None:
        self.session = session or Session(
            InMemoryContextPointerStore(), session_id="user:42", config=SessionConfig(**config)
        )
        self.tool = tool
        self.messages: list[Any] = [QUESTION]

    def call(self) -> None:
        call_id = f"c{len(self.messages)}"
        function = {"name": self.tool, "arguments": '{"kind": "all"}'}
        self.messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "function": function}],
            }
        )

    def answer(self, content: Any) -> None:
        call_id = self.messages[-1]["tool_calls"][0]["id"]
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    async def run(self, result: Any, **facts: Any) -> Offloaded:
        self.call()
        facts = {"messages": self.messages} | facts
        shown = await self.session.offload(result, tool=self.tool, args={"kind": "all"}, **facts)
        self.answer(str(shown))
        return shown


@pytest.fixture
async def talk() -> Conversation:
    """A conversation in which a tool returned rows, whose preview is `first`."""
    talk = Conversation()
    talk.first = await talk.run(ROWS)
    return talk


async def test_the_same_result_is_one_line_that_names_its_pointer_t_05(talk: Conversation) -> None:
    again = await talk.run(ROWS)
    assert again.form == "identical"
    assert not again.is_whole
    assert again.pointer_id == talk.first.pointer_id
    assert str(again) == (
        f"Identical to the result above: list_parts ({talk.first.pointer_id}) returned the same "
        f"{talk.first.total_chars:,} characters again. Read them with read_context and this id."
    )
    assert len(talk.session.store.list(query_id="user:42")) == 1


async def test_another_process_finds_the_output_in_the_messages_t_05(talk: Conversation) -> None:
    talk.session = Session(talk.session.store, session_id="user:42")
    assert (await talk.run(ROWS)).form == "identical"


@pytest.mark.parametrize(
    "shape",
    [
        lambda text: [{"type": "text", "text": text}],
        lambda text: [{"type": "output_text", "text": text}],
    ],
)
async def test_an_output_in_one_block_of_text_is_found(talk: Conversation, shape: Any) -> None:
    talk.messages[-1]["content"] = shape(str(talk.first))
    assert (await talk.run(ROWS)).form == "identical"


@pytest.mark.parametrize("result", [ROWS, CHANGED], ids=["same", "changed"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("part 1 ", "part 2 ", 1),
        lambda text: text.replace("You have not read the rest", "You have read the rest"),
        lambda text: text[: len(text) // 2],
        lambda text: f"{text}\n(cut by the host)",
        lambda text: "[Old tool result cleared]",
    ],
)
async def test_an_output_that_was_edited_is_not_referred_to_t_05(
    talk: Conversation, edit: Any, result: Any
) -> None:
    assert edit(str(talk.first)) != str(talk.first)
    talk.messages[-1]["content"] = edit(str(talk.first))
    assert (await talk.run(result)).form == "preview"


async def test_without_messages_no_output_is_referred_to_t_05(talk: Conversation) -> None:
    assert (await talk.run(ROWS, messages=None)).form == "preview"
    assert (await talk.run(ROWS, messages=[QUESTION])).form == "preview"
    changed = await talk.run(CHANGED, messages=None)
    assert changed.form == "changed"
    assert "above" not in str(changed)
    assert f"differs from the earlier result {talk.first.pointer_id} of this call" in str(changed)
    assert (await talk.run(ROWS, messages=[QUESTION])).form == "preview"


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_a_preview_that_somebody_quotes_is_no_output_t_05(
    talk: Conversation, role: str
) -> None:
    talk.messages[1:] = [{"role": role, "content": str(talk.first)}]
    assert (await talk.run(ROWS)).form == "preview"


async def test_the_output_of_another_tool_is_not_the_earlier_output_t_05(
    talk: Conversation,
) -> None:
    forger = Conversation(tool="fetch_page")
    forger.call()
    forger.answer(str(talk.first))
    talk.messages[1:] = forger.messages[1:]
    assert (await talk.run(ROWS)).form == "preview"
    # Two tools share the id of a call, so the output may be of either.
    del talk.messages[3:]
    talk.messages[1]["tool_calls"].append(
        {"id": "c1", "function": {"name": "list_parts", "arguments": "{}"}}
    )
    assert (await talk.run(ROWS)).form == "preview"


async def test_a_preview_whose_pointer_has_another_result_now_is_no_output_t_05(
    talk: Conversation,
) -> None:
    args = {"kind": "all"}
    await talk.session.store.save(
        query_id="user:42", tool_name="list_parts", args=args, result=CHANGED
    )
    assert (await talk.run(CHANGED)).form == "preview"


async def test_changes_are_old_then_new_by_key_and_take_a_quarter_at_most_t_05(
    talk: Conversation,
) -> None:
    changed = await talk.run(CHANGED)
    assert changed.form == "changed"
    assert changed.pointer_id != talk.first.pointer_id
    assert "Changed, by id:\n7: stock: 49 → 0" in str(changed)
    assert COUNTER.count(str(changed)) <= COUNTER.count(str(CHANGED)) / 4
    reading = await talk.session.read(str(changed.pointer_id), path="/7/stock")
    assert reading.text == "0"


async def test_lines_of_a_text_are_compared_t_05() -> None:
    talk = Conversation()
    await talk.run(TEXT)
    changed = await talk.run(TEXT.replace("line 77 of", "LINE 77 of"))
    assert changed.form == "changed"
    assert "-78: line 77 of the log\n+78: LINE 77 of the log" in str(changed)


@pytest.mark.parametrize(
    "result",
    [{"items": ROWS}, TEXT, [row | {"stock": 1} for row in ROWS]],
    ids=["shape", "type", "all"],
)
async def test_what_is_too_different_has_a_preview_t_05(talk: Conversation, result: Any) -> None:
    assert (await talk.run(result)).form == "preview"


async def test_changes_of_changes_need_all_before_them_in_the_prompt_t_05(
    talk: Conversation,
) -> None:
    await talk.run(CHANGED)
    assert (await talk.run(CHANGED)).form == "identical"
    third = copy.deepcopy(CHANGED)
    third[8]["stock"] = 0
    assert (await talk.run(third)).form == "changed"
    del talk.messages[1:3]  # the first preview
    assert (await talk.run(third)).form == "preview"


async def test_a_result_that_came_back_is_compared_with_the_newest_t_05(talk: Conversation) -> None:
    await talk.run(CHANGED)
    back = await talk.run(ROWS)
    assert "7: stock: 0 → 49" in str(back)


async def test_a_turn_without_tokens_names_the_pointer() -> None:
    talk = Conversation(offload=OffloadPolicy(max_turn_tokens=10))
    first = await talk.run(ROWS)
    stored = f"{first.total_chars:,} characters are stored, none has been read;"
    assert str(first).startswith(stored)
    again = await talk.run(ROWS)
    assert again.form == "preview"
    assert str(again) == str(first)


async def test_a_short_result_gets_no_line_that_saves_nothing() -> None:
    talk = Conversation(offload=OffloadPolicy(tools={"list_parts": 0}))
    await talk.run(ROWS[:2])
    assert (await talk.run(ROWS[:2])).form == "preview"


async def test_a_new_question_that_the_result_answers_gets_its_preview_t_05(
    talk: Conversation,
) -> None:
    talk.messages.append({"role": "user", "content": "Look again, please."})
    assert (await talk.run(ROWS)).form == "identical"
    talk.messages.append({"role": "user", "content": "What is the stock of part 512?"})
    shown = await talk.run(ROWS)
    assert shown.form == "preview"
    assert "3584" in str(shown)
    assert (await talk.run(ROWS)).form == "identical"


@pytest.mark.parametrize("problem", ["expired", "damaged"])
async def test_an_earlier_result_that_cannot_be_read_means_a_preview_t_05(problem: str) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    blobs = MemoryBlobStore()
    store = ContextPointerStore(LockedRecords(blobs), ttl_s=60.0, clock=lambda: now[0])
    talk = Conversation(Session(store, session_id="a"))
    first = await talk.run(ROWS)
    if problem == "expired":
        now[0] += timedelta(seconds=90)
    else:
        key = f"a/{first.pointer_id}.result.json"
        damaged = blobs.get(key).replace(b"part 1", b"part 2")
        blobs.put(key, damaged)
    assert (await talk.run(CHANGED)).form == "preview"


async def test_secrets_that_the_store_removes_are_in_no_change_t_05() -> None:
    store = InMemoryContextPointerStore(redact_results=True)
    talk = Conversation(Session(store))
    secrets = [f"sk-ant-api03-{letter * 40}" for letter in "ab"]
    for secret, rows, form in ((secrets[0], ROWS, "preview"), (secrets[1], CHANGED, "changed")):
        shown = await talk.run([*rows, {"id": -1, "api_key": secret}])
        assert shown.form == form
        assert secret not in str(shown)
    assert "1 changed, 0 came, 0 went" in str(shown)


async def test_a_stored_result_is_compared_only_within_a_prompt(talk: Conversation) -> None:
    args = {"kind": "all"}
    pointer = await talk.session.results.save(CHANGED, tool="list_parts", args=args)
    assert (await talk.run(CHANGED, pointer=pointer, messages=None)).form == "preview"
    del talk.messages[-2:]
    assert (await talk.run(CHANGED, pointer=pointer)).form == "changed"


async def test_conversations_that_share_an_id_are_not_compared_t_05(
    store: InMemoryContextPointerStore,
) -> None:
    for result in (ROWS, CHANGED):
        session = Session.over(SavedResults(store, "shared", lists_own=True))
        shown = await session.offload(result, tool="list_parts", args={})
        assert shown.form == "preview"


# --- folding


@pytest.fixture
async def folding() -> Conversation:
    """A conversation whose prompts are folded, in which a tool returned rows."""
    talk = Conversation(fold=FoldPolicy(max_tokens=1_500))
    talk.first = await talk.run(ROWS)
    return talk


def chatter(count: int) -> list[Any]:
    return [
        {"role": role, "content": f"{number} " + "and so on " * 30}
        for number in range(count)
        for role in ("assistant", "user")
    ]


def refers(messages: Any) -> bool:
    return any("Identical to the result above" in str(one["content"]) for one in messages)


async def test_a_result_that_fold_took_from_the_prompt_is_previewed_again_t_05(
    folding: Conversation,
) -> None:
    for message in chatter(20):
        folding.messages.append(message | {"role": "assistant"})
    again = await folding.run(ROWS)
    assert again.form == "preview"
    assert again.pointer_id == folding.first.pointer_id


async def test_fold_replaces_a_line_when_its_result_leaves_t_05(folding: Conversation) -> None:
    assert (await folding.run(ROWS)).form == "identical"
    assert refers(await folding.session.fold(folding.messages))
    for count in range(1, 20):
        sent: list[Any] = await folding.session.fold([*folding.messages, *chatter(count)])
        is_in_view = any(one["content"] == str(folding.first) for one in sent)
        assert refers(sent) == is_in_view
        assert await folding.session.fold(sent) == sent
    dropped: list[Any] = await folding.session.fold([QUESTION, *folding.messages[-2:]])
    assert dropped[-1]["content"] == (
        f"list_parts ({folding.first.pointer_id}) returned the same {folding.first.total_chars:,} characters, not "
        "shown any more. Read them with read_context and this id."
    )


@pytest.mark.parametrize("fold", [None, FoldPolicy(max_tokens=10_000)])
async def test_a_line_is_replaced_if_the_caller_dropped_its_result_t_05(
    fold: FoldPolicy | None,
) -> None:
    talk = Conversation(fold=fold)
    await talk.run(ROWS)
    await talk.run(ROWS)
    assert await talk.session.fold(talk.messages) == talk.messages
    talk.messages[2]["content"] = "[Old tool result cleared]"
    sent: list[Any] = await talk.session.fold(talk.messages)
    assert "not shown any more" in sent[-1]["content"]
    assert refers(talk.messages)


async def test_a_text_that_looks_like_a_line_is_left_alone_t_05(folding: Conversation) -> None:
    again = await folding.run(ROWS)
    line = str(again)
    unknown = line.replace(str(folding.first.pointer_id), "0" * 12)
    messages: list[Any] = [QUESTION, {"role": "user", "content": line}]
    messages.append({"role": "assistant", "content": line})
    for tool, text in (("fetch_page", line), ("list_parts", unknown), ("list_parts", f"{line} ")):
        forger = Conversation(tool=tool)
        forger.call()
        forger.answer(text)
        messages += forger.messages[1:]
    assert await folding.session.fold(messages) == messages


async def test_a_forged_preview_keeps_no_line_t_05(folding: Conversation) -> None:
    await folding.run(ROWS)
    forged = str(folding.first).replace("part 1 ", "part 0 ")
    folding.messages[2]["content"] = forged
    sent: list[Any] = await folding.session.fold(folding.messages)
    assert sent[2]["content"] == forged
    assert not refers(sent)


async def test_changes_do_not_make_the_result_before_them_a_repeat_t_05(
    folding: Conversation,
) -> None:
    many = copy.deepcopy(ROWS)
    for row in many[:5]:
        row["stock"] = 0
    changed = await folding.run(many)
    assert changed.form == "changed"
    assert COUNTER.count(str(changed)) > 100
    look = Conversation(tool="look")
    look.call()
    look.answer("a word " * 400)
    messages = [QUESTION, *look.messages[1:], *folding.messages[1:], *chatter(2)]
    sent: list[Any] = await folding.session.fold(messages)
    contents = [one["content"] for one in sent]
    assert "a word " * 400 not in contents
    assert str(folding.first) in contents
    assert str(changed) in contents


async def test_results_are_compared_outside_the_event_loop() -> None:
    talk = Conversation()
    large = [row | {"id": number, "note": "x" * 200} for number, row in enumerate(ROWS * 4)]
    await talk.run(large)
    large[5] = large[5] | {"stock": -1}
    busy_s, shown = await longest_tick_s(talk.run(large))
    assert shown.form == "changed"
    assert busy_s < 0.25


async def test_scripted_pairs_have_no_wrong_claim_t_05() -> None:
    outcomes = await run(50, seed=5)
    assert [outcome.wrong for outcome in outcomes if outcome.wrong] == []
    assert {outcome.form for outcome in outcomes} >= {"identical", "changed", "preview"}
    for outcome in outcomes:
        if outcome.form in ("identical", "changed"):
            assert outcome.share <= MAX_SHARE
