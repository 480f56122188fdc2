"""The program with Google's ADK: an app with a database of sessions."""

import os
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from llm_common.agents import Sessions
from llm_common.integrations.google_adk import LLMCommonPlugin
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> Gemini:
    os.environ["GOOGLE_API_KEY"] = "none"
    return Gemini(model="gemini-2.5-flash", base_url=url)


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    agent = LlmAgent(name="desk", model=model_of(url), tools=[*tools])
    plugin = LLMCommonPlugin(sessions)
    runner = Runner(
        app=App(name="shop", root_agent=agent, plugins=[plugin]),
        session_service=SqliteSessionService(str(folder / "sessions.sqlite")),
        auto_create_session=True,
    )

    async def ask(user: str, text: str) -> str:
        question = types.Content(role="user", parts=[types.Part(text=text)])
        answer = ""
        events = runner.run_async(user_id=user, session_id="chat", new_message=question)
        async for event in events:
            for part in (event.content and event.content.parts) or ():
                answer = part.text or answer
        return answer

    return ask
