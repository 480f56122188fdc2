"""Test LlamaIndex agents whose tools are wrapped functions, against a scripted endpoint."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ImageBlock
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index.llms.openai_like import OpenAILike

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.scripted_endpoint import (
    REPORT,
    Endpoint,
    check_audit,
    list_orders,
    newest_result,
    newest_results,
    pointer_of,
    read_both,
    read_log,
    scripted,
)

# LlamaIndex leaves HTTP clients and event loops open.
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

ASKED: Any = InputRequiredEvent  # events take any field, which their types do not say
ANSWERED: Any = HumanResponseEvent


def llm_of(endpoint: Endpoint) -> OpenAILike:
    return OpenAILike(
        model="scripted",
        api_base=endpoint.url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )


def agent_of(endpoint: Endpoint, session: Session, *more: Any, **options: Any) -> FunctionAgent:
    functions = [wrap_tool(list_orders, session), wrap_tool(read_log, session), *more]
    return FunctionAgent(
        tools=[*functions, *tool_functions(session)], llm=llm_of(endpoint), **options
    )


def session_of(folder: Path | None = None, user: str = "bob") -> Session:
    return Session(folder or InMemoryContextPointerStore(), session_id=f"user:{user}")


async def ask(agent: Any, question: str, **more: Any) -> str:
    return str(await agent.run(question, **more))


@pytest.mark.parametrize("streaming", [True, False])
async def test_two_parallel_results_are_offloaded_and_read_back(streaming: bool) -> None:
    with scripted(REPORT, read_both, newest_results) as endpoint:
        agent = agent_of(endpoint, session_of(), streaming=streaming)
        answer = await ask(agent, "Report on bob.")
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer
    assert endpoint.largest < 12_000


async def test_a_wrapped_function_has_the_same_schema() -> None:
    plain = FunctionTool.from_defaults(list_orders)
    wrapped = FunctionTool.from_defaults(wrap_tool(list_orders, session_of()))
    assert wrapped.metadata.to_openai_tool() == plain.metadata.to_openai_tool()


async def test_the_model_reads_why_a_tool_failed() -> None:
    session = session_of()
    calls = [("check_audit", {"customer": "bob"})]
    with scripted(calls, newest_result) as endpoint:
        agent = agent_of(endpoint, session, wrap_tool(check_audit, session))
        assert "the audit of bob is down" in await ask(agent, "Check bob.")


async def test_a_restarted_process_reads_an_old_pointer(tmp_path: Path) -> None:
    with scripted(REPORT, "Done.") as endpoint:
        await ask(agent_of(endpoint, session_of(tmp_path)), "Report on bob.")
    pointer_id = pointer_of("list_orders", endpoint.requests[-1]["messages"])
    reading = [("read_context", {"id": pointer_id, "path": "/4321/code"})]
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        with scripted(reading, newest_result) as endpoint:
            agent = agent_of(endpoint, session_of(tmp_path, user))
            assert expected in await ask(agent, "Which code has row 4321?")


async def test_an_approval_is_awaited_before_the_result_is_offloaded() -> None:
    session = session_of()

    async def export_orders(ctx: Context, customer: str) -> str:
        """Export the orders, after a person has agreed."""
        question = ASKED(prefix="Export?", user_name=customer)
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=question, requirements={"user_name": customer}
        )
        return list_orders(customer) if answer.response == "yes" else "refused"

    calls = [("export_orders", {"customer": "bob"})]
    with scripted(calls, newest_result) as endpoint:
        handler = agent_of(endpoint, session, wrap_tool(export_orders, session)).run("Export.")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert handler.ctx is not None
                handler.ctx.send_event(ANSWERED(response="yes", user_name="bob"))
        answer = str(await handler)
    assert "characters are stored" in answer
    [pointer] = session.results.list_all()
    assert pointer.args == {"customer": "bob"}


async def test_another_agent_reads_after_a_handoff() -> None:
    session = session_of()
    handoff = [("handoff", {"to_agent": "reader", "reason": "read"})]
    with scripted(REPORT, handoff, read_both, newest_results) as endpoint:
        lister = agent_of(
            endpoint, session, name="lister", description="lists", can_handoff_to=["reader"]
        )
        reader = FunctionAgent(
            name="reader",
            description="reads",
            tools=[*tool_functions(session)],
            llm=llm_of(endpoint),
        )
        workflow = AgentWorkflow(agents=[lister, reader], root_agent="lister")
        answer = await ask(workflow, "Report on bob.")
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer


async def test_an_image_reaches_the_framework_unchanged() -> None:
    image = ImageBlock(image=b"\x89PNG" + bytes(90_000))

    def photo() -> ImageBlock:
        """Take a photo."""
        return image

    output = FunctionTool.from_defaults(wrap_tool(photo, session_of()))()
    assert output.raw_output is image


async def test_a_result_that_cannot_be_stored_is_shown_and_cut() -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    with scripted([("list_orders", {"customer": "bob"})], newest_result) as endpoint:
        answer = await ask(agent_of(endpoint, session), "Report on bob.")
    assert "characters were not kept" in answer


async def test_the_documentation_runs_for_two_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: list[dict[str, Any]]) -> Any:
        pointer_id = pointer_of("list_parts", messages)
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    with scripted([("list_parts", {"kind": "all"})], read, newest_result) as endpoint:
        page = run_page("llamaindex", names={"model": llm_of(endpoint)})
        assert "10500" in await page["answer"]("ann", "What is the stock of part 1500?")
    pointer_id = pointer_of("list_parts", endpoint.requests[-1]["messages"])
    reading = [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    with scripted(reading, newest_result, reading, newest_result) as endpoint:
        page = run_page("llamaindex", names={"model": llm_of(endpoint)})
        # Tasks, as a server has them. Each has a copy of the context variables.
        bob = await asyncio.create_task(page["answer_any"]("bob", "And part 1500?"))
        ann = await asyncio.create_task(page["answer_any"]("ann", "And part 1500?"))
    assert "no stored result of this session" in bob
    assert "10500" in ann


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("llamaindex", tmp_path)
