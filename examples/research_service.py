"""Serve research to many users: events while a run works, outputs on demand, erasing.

    python examples/research_service.py [PORT]

    curl -N -H 'X-User: ann' 'http://127.0.0.1:8000/ask?question=How+did+ACME+close+on+day+4000?'

Run `pip install . fastapi uvicorn` in a checkout first, and set OPENAI_API_KEY or another key.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    FileContextPointerStore,
    Planner,
    RunEvent,
    Session,
    Settings,
    StreamEvent,
    ToolRegistry,
    ToolSelector,
)
from llm_common.core import LLMClient, OpenAICompatibleClient
from llm_common.errors import LLMCommonError, PointerNotFoundError
from llm_common.memory import SqliteMemory, UserMemory

tools = ToolRegistry()


@tools.tool(read_only=True)
async def daily_prices(ticker: str) -> list[dict[str, str | int]]:
    """Return all daily closing prices of a ticker."""
    return [{"day": day, "ticker": ticker, "close": 100 + day % 37} for day in range(5_000)]


def current_user(x_user: Annotated[str, Header(pattern=r"^[a-z0-9-]{1,40}$")]) -> str:
    """Return the user of a request. Put your own login here."""
    return f"user:{x_user}"


User = Annotated[str, Depends(current_user)]


async def server_sent(events: AsyncGenerator[RunEvent, None]) -> AsyncIterator[str]:
    """Yield the events of a run for a browser. A browser that leaves ends the run."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event.to_sse()
        except LLMCommonError as error:  # as if the user's same question is still running
            yield StreamEvent(type="error", data={"error": error.message}).to_sse()


async def expire_outputs(store: FileContextPointerStore) -> None:
    """Remove expired outputs once an hour."""
    while True:
        await store.gc()
        await asyncio.sleep(3_600)


def create_app(client: LLMClient, folder: Path) -> FastAPI:
    """Return the service. Everything that outlives the process is in the folder."""
    settings = Settings.from_env()
    store = FileContextPointerStore(folder / "outputs", ttl_s=30 * 86_400)
    memory = SqliteMemory(folder / "memory.sqlite")
    planner = Planner(client)
    executor = AgenticExecutor(
        client,
        tools,
        Session(store),
        selector=ToolSelector(client, settings.tool_selection),
        limits=settings.limits,
        offload=settings.offload,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with client, memory:
            expiry = asyncio.create_task(expire_outputs(store))
            yield
            expiry.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/ask")
    async def ask(question: str, user: User) -> StreamingResponse:
        answering = Answering(budget=settings.budget, memory=UserMemory(memory, user))
        events = executor.answer_stream(question, plan=planner, answering=answering, session=user)
        return StreamingResponse(server_sent(events), media_type="text/event-stream")

    @app.get("/outputs/{pointer_id}")
    async def output(pointer_id: str, user: User, cursor: str | None = None) -> dict[str, object]:
        try:
            piece = await Session(store, session_id=user).read(pointer_id, cursor=cursor)
        except PointerNotFoundError as error:
            raise HTTPException(404, error.message) from error
        return piece.model_dump()

    @app.delete("/me")
    async def erase(user: User) -> dict[str, int]:
        await Session(store, session_id=user).clear()
        return {"memories": await memory.forget(user=user)}

    return app


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    uvicorn.run(create_app(OpenAICompatibleClient.from_env(), Path("research")), port=port)
