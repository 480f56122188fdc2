"""The program with LangChain: a thread for each user, whose checkpoints are in SQLite."""

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import SecretStr

from llm_common.agents import Sessions
from llm_common.integrations.langchain import LLMCommonMiddleware
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> ChatOpenAI:
    return ChatOpenAI(model_name="scripted", openai_api_base=url, openai_api_key=SecretStr("none"))


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    model, middleware = model_of(url), LLMCommonMiddleware(sessions)

    async def ask(user: str, text: str) -> str:
        async with AsyncSqliteSaver.from_conn_string(str(folder / f"{user}.sqlite")) as saver:
            agent: Any = create_agent(model, tools, middleware=[middleware], checkpointer=saver)
            state = await agent.ainvoke(
                {"messages": [{"role": "user", "content": text}]},
                {"configurable": {"thread_id": user}},
            )
        return str(state["messages"][-1].content)

    return ask
