"""Answers for which the model reads stored outputs back."""

import asyncio
import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.agents import (
    Answer,
    Answering,
    ContextPointer,
    InMemoryContextPointerStore,
    LexicalToolSelector,
    OffloadPolicy,
    SubTaskResult,
    TokenBudget,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.agents.answer_reading import Unread
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.context.bundle import Form, ItemAccount
from llm_common.core import ExactCounter, LLMMessage, LLMResponse, LLMUsage
from llm_common.errors import LLMAuthError, LLMRateLimitError, LLMStatusError
from llm_common.testing import ScriptedClient
from llm_common.text.canonical import stable_json
from tests.agents.runs import asking, session, text_of

# In a long text, since counts and ranges of values are in every prompt.
ROWS = [
    {
        "order": f"A-{number}",
        "state": "sent",
        "note": f"{'Paid on time. ' * 5}Cost {90_001 if number == 300 else 7}",
    }
    for number in range(400)
]
QUESTION = "What did the dearest order cost?"
SMALL = TokenBudget(max_input_tokens=4_000, max_output_tokens=200)


@pytest.fixture
async def manager() -> ToolContextManager:
    """A session that has stored the rows."""
    return await session(ROWS)


@pytest.fixture
def pointer(manager: ToolContextManager) -> ContextPointer:
    return manager.get_all_pointers()[0]


async def ask(
    *replies: Any, manager: ToolContextManager | None = None, **options: Any
) -> tuple[Answer, ScriptedClient]:
    """Ask for the dearest order a model that replies by a script, in a small prompt."""
    client, answering = ScriptedClient(replies), Answering(**({"budget": SMALL} | options))
    return await answering.answer(client, manager or await session(ROWS), query=QUESTION), client


def call(arguments: object, name: str = "read_context", call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def calls(*made: dict[str, Any], text: str | None = None) -> LLMResponse:
    usage = LLMUsage(prompt_tokens=100, completion_tokens=5, total_tokens=105)
    return LLMResponse(
        id="1",
        model="m",
        content=text,
        tool_calls=list(made),
        finish_reason="tool_calls",
        usage=usage,
        cost_usd=0.25,
    )


def found(pointer_id: str) -> dict[str, Any]:
    return {"id": pointer_id, "path": "/300"}


class ToollessClient:
    """A client whose `chat_completion` takes no tools."""

    def __init__(self, replies: list[str]) -> None:
        self.replies = replies
        self.prompts: list[list[LLMMessage]] = []

    async def chat_completion(
        self, *, messages: list[LLMMessage], model: str | None, max_tokens: int
    ) -> LLMResponse:
        self.prompts.append(messages)
        return LLMResponse(id="1", model="m", content=self.replies.pop(0), finish_reason="stop")


async def test_outputs_that_are_shown_whole_are_not_offered_again() -> None:
    client = ScriptedClient(["It cost 6 euros."])
    answer = await Answering().answer(client, await session(ROWS[:3]), query=QUESTION)
    assert (answer.status, answer.reads, len(answer.attempts)) == ("ok", (), 1)
    assert client.calls[0].options == {}
    assert "read_context" not in text_of(client.calls[0].messages)


async def test_a_model_that_does_not_ask_to_read_costs_one_call() -> None:
    answer, client = await ask("I would have to look.")
    assert (answer.text, len(client.calls)) == ("I would have to look.", 1)
    [tool] = client.calls[0].options["tools"]
    assert tool["function"]["name"] == "read_context"


async def test_a_model_reads_natively_what_the_prompt_left_out(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    answer, client = await ask(
        calls(call(found(pointer.pointer_id)), text="Let me look."),
        "It cost 90001 euros.",
        manager=manager,
    )
    assert (answer.status, answer.text, answer.failures) == ("ok", "It cost 90001 euros.", ())
    [read] = answer.reads
    assert (read.pointer_id, read.args, read.problem) == (
        pointer.pointer_id,
        found(pointer.pointer_id),
        "",
    )
    assert 0 < read.tokens <= 1_000
    first, second = (request.messages for request in client.calls)
    assert f"- {pointer.pointer_id} " in text_of(first)
    assert "you have not read whole" in text_of(first)
    assert "90001" not in text_of(first)
    asked, result = second[len(first) :]
    assert second[: len(first)] == first
    assert asked.tool_calls is not None
    assert (asked.role, asked.content, result.role) == ("assistant", None, "tool")
    assert result.tool_call_id == asked.tool_calls[0]["id"] == "c1"
    assert "A-300" in str(result.content)
    assert "Cost 90001" in str(result.content)
    assert (answer.usage.total_tokens, answer.cost_usd) == (105, None)


async def test_the_same_read_again_is_answered_in_one_line(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    again = found(pointer.pointer_id)
    answer, client = await ask(
        calls(call(again)), calls(call(again, call_id="c2")), "90,001.", manager=manager
    )
    assert [bool(read.problem) for read in answer.reads] == [False, True]
    results = [str(message.content) for message in client.calls[2].messages if message.tool_call_id]
    assert "90001" in results[0]
    assert results[1].startswith("Nothing was read: this call was made before, and its result")
    assert len(results[1]) < 200


async def test_costs_and_tokens_of_all_calls_are_added_up() -> None:
    usage = LLMUsage(prompt_tokens=50, completion_tokens=1, total_tokens=51)
    last = LLMResponse(
        id="2", model="m", content="90001", finish_reason="stop", usage=usage, cost_usd=0.5
    )
    answer, _ = await ask(calls(call(found("x"))), last)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens, answer.cost_usd) == (
        150,
        156,
        0.75,
    )
    assert Answer(status="no_data").cost_usd == 0


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("keys", [("tool", "args"), ("name", "arguments")])
async def test_a_model_without_tools_reads_by_json(
    manager: ToolContextManager, pointer: ContextPointer, fenced: bool, keys: tuple[str, str]
) -> None:
    reply = json.dumps({keys[0]: "read_context", keys[1]: found(pointer.pointer_id)})
    client = ToollessClient([f"```json\n{reply}\n```" if fenced else reply, "It cost 90001 euros."])
    answering = Answering(budget=SMALL)
    answer = await answering.answer(client, manager, query=QUESTION)  # type: ignore[arg-type]
    assert (answer.text, [read.pointer_id for read in answer.reads]) == (
        "It cost 90001 euros.",
        [pointer.pointer_id],
    )
    first, second = client.prompts
    assert '{"tool": "read_context", "args": {"id"' in str(first[0].content)
    asked, result = second[len(first) :]
    assert (asked.role, result.role) == ("assistant", "user")
    assert "90001" in str(result.content)


@pytest.mark.parametrize(
    "reply",
    [
        '{"euros": 90001}',
        "It is in [brackets] and {braces}.",
        '{"tool": "other", "args": {}}',
        "{not json}",
    ],
)
async def test_json_that_is_no_call_is_the_answer(reply: str) -> None:
    answer, client = await ask(reply, native_tools=False)
    assert (answer.text, answer.reads) == (reply, ())
    assert "tools" not in client.calls[0].options


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_endpoint_that_takes_no_tools_is_asked_by_json(
    manager: ToolContextManager, pointer: ContextPointer, status: int
) -> None:
    refusal = LLMStatusError("refused", status=status, body="this model does not support tools")
    reply = json.dumps({"tool": "read_context", "args": found(pointer.pointer_id)})
    answer, client = await ask(refusal, reply, "It cost 90001 euros.", manager=manager)
    assert (answer.text, len(answer.reads), len(answer.attempts)) == ("It cost 90001 euros.", 1, 3)
    assert ["tools" in request.options for request in client.calls] == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "name", "problem"),
    [
        ({"id": "0" * 12}, "read_context", "no stored result of this session has this id"),
        ({"path": "/x"}, "read_context", '"id" is a required'),
        ('{"id": ', "read_context", "not one whole JSON object"),
        ({}, "search", "no tool has this name. Call read_context"),
    ],
    ids=["no such id", "no id", "no object", "another tool"],
)
async def test_the_model_sees_why_a_read_failed(arguments: object, name: str, problem: str) -> None:
    answer, client = await ask(calls(call(arguments, name)), "It could not be read.")
    assert (answer.status, answer.text) == ("ok", "It could not be read.")
    assert problem in str(client.calls[1].messages[-1].content)
    assert problem in answer.reads[0].problem


async def test_the_model_sees_that_a_json_call_was_incomplete() -> None:
    reply = '{"tool": "read_context", "args": {"id": x}}'
    answer, client = await ask(reply, "No.", native_tools=False)
    assert answer.text == "No."
    assert "not one whole JSON object" in str(client.calls[1].messages[-1].content)


async def test_after_the_last_read_the_model_must_answer(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    whole = {"id": pointer.pointer_id}
    answer, client = await ask(
        calls(call(whole), call(whole, call_id="c2")),
        calls(call(whole)),
        "Done.",
        manager=manager,
        max_reads=1,
    )
    assert (answer.text, len(answer.reads)) == ("Done.", 1)
    assert ["tools" in request.options for request in client.calls] == [True, True, False]
    first, refused, *_, last = client.calls[2].messages[-5:]
    assert "No reads are left" in str(client.calls[1].messages[-2].content)
    assert str(client.calls[1].messages[-1].content) == str(last.content)
    assert "No reads are left: answer now" in str(last.content)
    assert first != refused


async def test_a_model_that_does_not_stop_reading_gets_no_answer(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    reply = json.dumps({"tool": "read_context", "args": found(pointer.pointer_id)})
    answer, client = await ask(*[reply] * 4, manager=manager, native_tools=False, max_reads=2)
    assert (answer.status, answer.text, len(answer.reads), len(client.calls)) == (
        "invalid",
        None,
        2,
        4,
    )
    assert "asked to read again" in answer.problem
    assert answer.attempts[-1].reason == "reads_again"


async def test_a_read_gets_as_much_as_there_is_room_for(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    replies = [calls(call({"id": pointer.pointer_id}))] * 3
    budget = TokenBudget(max_input_tokens=2_000, max_output_tokens=200)
    answer, _ = await ask(*replies, "Done.", manager=manager, budget=budget, max_reads=3)
    first, *_, last = answer.reads
    assert 300 < first.tokens < 1_000
    assert (first.problem, last.problem[:12]) == ("", "Nothing was ")


async def test_max_reads_of_zero_offers_no_reader() -> None:
    _, client = await ask("Unknown.", max_reads=0)
    assert client.calls[0].options == {}


async def test_an_output_that_is_gone_is_a_failure_and_not_offered() -> None:
    manager = await session(ROWS, ROWS[:2000])
    gone, kept = manager.get_all_pointers()
    manager.pointer_store.delete(query_id=manager.session_id, pointer_ids=[gone.pointer_id])
    answer, client = await ask("Unknown.", manager=manager)
    prompt = text_of(client.calls[0].messages)
    assert answer.failures == (f"the stored output {gone.pointer_id} cannot be loaded",)
    assert f"- {answer.failures[0]}" in prompt
    assert f"- {gone.pointer_id} " not in prompt
    assert f"- {kept.pointer_id} " in prompt


async def test_the_reader_has_the_executors_name_for_it(tmp_path: Path) -> None:
    async def orders(customer: str) -> list[dict[str, Any]]:
        """List the orders of a customer."""
        return ROWS

    for options in ({"read_back": "fetch"}, {"offload": OffloadPolicy(reader_name="fetch")}):
        runner, client = asking(
            tmp_path,
            registry=ToolRegistry([Tool(orders, read_only=True)]),
            selector=LexicalToolSelector(),
            **options,
        )
        await runner.run('List the orders of the customer "Ines"')
        [tool] = client.calls[-1].options["tools"]
        assert tool["function"]["name"] == "fetch"
        assert "Read them with fetch and the id" in text_of(client.calls[-1].messages)


async def test_one_deadline_spans_all_calls_of_an_answer() -> None:
    answer, _ = await ask(calls(call({})), lambda _: asyncio.sleep(30, "late"), timeout_s=1.5)
    assert (answer.status, len(answer.reads)) == ("timeout", 1)


@given(st.integers(0, 10_000))
async def test_no_prompt_of_an_answer_is_over_and_no_result_without_its_call(seed: int) -> None:
    chance, counter = random.Random(seed), ExactCounter()
    texts = [
        "word " * chance.randint(1, 4_000),
        ROWS[: chance.randint(1, 400)],
        "日本語 " * chance.randint(1, 3_000),
    ]
    manager = await session(*chance.sample(texts, chance.randint(1, 3)))
    ids = [pointer.pointer_id for pointer in manager.get_all_pointers()]
    budget = TokenBudget(max_input_tokens=chance.randint(700, 6_000), max_output_tokens=400)

    def model(messages: list[LLMMessage]) -> LLMResponse | str:
        if chance.random() < 0.3:
            return "Done."
        made = [
            call({"id": chance.choice(ids)}, call_id=f"c{number}")
            for number in range(chance.randint(1, 3))
        ]
        junk = call({"id": "x" * chance.choice((3, 3_000))}, call_id="junk")
        return calls(*made, junk)

    client = ScriptedClient([], default=model)
    answering = Answering(budget=budget, counter=counter, max_reads=chance.randint(0, 5))
    answer = await answering.answer(client, manager, query=QUESTION)
    assert len(answer.reads) <= answering.max_reads
    assert len(client.calls) <= answering.max_reads + 2
    for request in client.calls:
        tools = request.options.get("tools")
        tokens = counter.count(stable_json(tools)) if tools else 0
        tokens += sum(counter.count(str(message.content or "")) for message in request.messages)
        tokens += sum(counter.count(json.dumps(message.tool_calls)) for message in request.messages)
        assert request.max_tokens == 400
        assert tokens <= budget.max_input_tokens
        assert answer.prompt_tokens <= budget.max_input_tokens
        asked = [made["id"] for message in request.messages for made in message.tool_calls or ()]
        assert asked == [
            message.tool_call_id for message in request.messages if message.role == "tool"
        ]


async def test_failures_are_listed_before_unread_outputs() -> None:
    gathered = [{"tool": "orders", "output": 1}]
    results = [
        SubTaskResult(task_id=1, sub_task_id=0, success=True, result=gathered, error="a slip"),
        SubTaskResult(task_id=2, sub_task_id=0, success=False, error="prices raised OSError: 503"),
    ]
    client, answering = ScriptedClient(["No."]), Answering(budget=SMALL)
    answer = await answering.answer(client, await session(ROWS), query=QUESTION, results=results)
    assert answer.status == "ok"
    assert answer.failures == ("task 2 failed: prices raised OSError: 503", "a slip")
    prompt = text_of(client.calls[0].messages)
    failed = prompt.index("- task 2 failed: prices raised OSError: 503\n- a slip")
    assert 0 < failed < prompt.index("you have not read whole") < prompt.index(QUESTION)


@pytest.mark.parametrize(
    "result",
    [None, "No tools called", [], [{"tool": "x", "error": "x failed"}]],
    ids=["none", "text", "empty", "failed"],
)
@pytest.mark.parametrize(
    ("error", "reason"), [("prices raised OSError",) * 2, (None, "no reason given")]
)
async def test_a_failed_task_with_nothing_gathered_asks_no_model(
    result: object, error: str | None, reason: str
) -> None:
    results = [
        SubTaskResult(task_id=1, sub_task_id=0, success=True, result=result),
        SubTaskResult(task_id=2, sub_task_id=0, success=False, error=error),
    ]
    client = ScriptedClient([])
    answer = await Answering().answer(client, await session(), query="What?", results=results)
    assert (answer.status, answer.failures) == ("no_data", (f"task 2 failed: {reason}",))
    assert (answer.problem, client.calls, answer.cost_usd) == (answer.failures[0], [], 0)


async def test_unread_outputs_are_listed_in_part_first_and_hidden_by_age() -> None:
    manager = await session("whole", "gone", "in part", "named", "older", "newer")
    whole, gone, part, named, older, newer = manager.get_all_pointers()
    request = ContextSelectionRequest(intent=classify_intent("Which?"), token_budget=100)
    empty = await ContextSelector(store=manager).select(request, DataPoolSnapshot())

    def account(pointer: ContextPointer, form: Form, reason: str) -> ItemAccount:
        return ItemAccount("output", pointer.pointer_id, "words", reason, form, 5, 0.5, {})

    context = replace(
        empty,
        kept=(account(whole, "whole", "share"), account(part, "passages", "share")),
        dropped=(account(gone, "left_out", "unavailable"), account(named, "pointer", "named")),
    )
    unread = Unread.of(context, manager.session)
    assert unread.ids == tuple(pointer.pointer_id for pointer in (part, named, newer, older))
    assert unread.lines == (
        f"- {part.pointer_id} {part.summary}: 9 bytes, shown in part",
        f"- {named.pointer_id} {named.summary}: 7 bytes, not shown",
        f"- {newer.pointer_id} {newer.summary}: 7 bytes, not shown",
        f"- {older.pointer_id} {older.summary}: 7 bytes, not shown",
    )
    assert unread.more == 0


async def test_an_endpoint_that_took_tools_once_is_not_asked_by_json(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    refusal = LLMStatusError("refused", status=400, body="tools are not supported")
    answer, client = await ask(
        calls(call(found(pointer.pointer_id))), refusal, "It cost 6 euros.", manager=manager
    )
    assert (answer.status, len(client.calls)) == ("error", 2)


async def test_a_read_that_hangs_ends_with_the_time_of_the_answer() -> None:
    blocked, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    class Hanging(InMemoryContextPointerStore):
        def load_payload(self, pointer_id: str, *, query_id: str) -> tuple[ContextPointer, bytes]:
            if blocked.is_set():
                goes_on.wait(timeout=20)
                ended.set()
            return super().load_payload(pointer_id, query_id=query_id)

    manager = ToolContextManager(pointer_store=Hanging())
    pointer = await manager.save_context("orders", {"page": 0}, ROWS)

    def read(_: object) -> LLMResponse:
        blocked.set()
        return calls(call(found(pointer.pointer_id)))

    answering = Answering(budget=SMALL, timeout_s=2.0)
    answer = await answering.answer(ScriptedClient([read]), manager, query=QUESTION)
    has_ended = ended.is_set()
    goes_on.set()
    assert (answer.status, blocked.is_set(), has_ended) == ("timeout", True, False)


@pytest.mark.parametrize(
    "refusal",
    [
        LLMStatusError("refused", status=400, body="bad temperature"),
        LLMAuthError("refused", status=403, body="no key for this tool"),
        LLMRateLimitError("refused", status=403, body="no key for this tool"),
    ],
)
async def test_another_refusal_is_not_repeated_by_json(refusal: LLMStatusError) -> None:
    answer, client = await ask(refusal, "It cost 6 euros.")
    assert (answer.status, len(client.calls)) == ("error", 1)


async def test_calls_without_an_id_get_one_each(
    manager: ToolContextManager, pointer: ContextPointer
) -> None:
    reads = [call(found(pointer.pointer_id), call_id="") for _ in range(2)]
    answer, client = await ask(
        calls(*reads), calls(reads[0]), "It cost 90001 euros.", manager=manager, max_reads=3
    )
    assert answer.status == "ok"
    messages = client.calls[-1].messages
    ids = [entry["id"] for message in messages for entry in message.tool_calls or ()]
    assert ids == ["call_0", "call_1", "call_2"]
    assert [message.tool_call_id for message in messages if message.tool_call_id] == ids
