"""The program with LlamaIndex: one agent for all users, whose contexts are in files."""

import json
from contextvars import ContextVar
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike

from llm_common.agents import Session, Sessions
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAILike:
    return OpenAILike(
        model="scripted",
        api_base=url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
    )


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    current: ContextVar[Session] = ContextVar("current")
    wrapped = [wrap_tool(function, current.get) for function in tools]
    agent = FunctionAgent(tools=[*wrapped, *tool_functions(current.get)], llm=model_of(url))

    async def ask(user: str, text: str) -> str:
        current.set(sessions.get(user))
        file = folder / f"{user}.json"
        context = Context(agent)
        if file.exists():
            context = Context.from_dict(agent, json.loads(file.read_text()))
        answer = str(await agent.run(text, ctx=context))
        file.write_text(json.dumps(context.to_dict()))
        return answer

    return ask
