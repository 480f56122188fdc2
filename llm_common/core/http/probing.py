"""`probe_endpoint`: a test of an endpoint and of the formats that it supports."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Literal

import httpx
from pydantic import BaseModel, ConfigDict

from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.http.providers import host_of
from llm_common.core.models import LLMConfig, LLMResponse
from llm_common.errors import LLMError

FormatName = Literal["json_schema", "tools", "stream"]

_QUESTION: Final = [{"role": "user", "content": "Is water wet? Answer with one word, yes or no."}]
_MAX_TOKENS: Final = 200  # for models that think before they answer
_ANSWER_SCHEMA: Final = MappingProxyType(
    {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
)


class FormatReport(BaseModel):
    """The result for one format.

    Attributes:
        name: `json_schema` for answers that fit a schema, `tools` for native tool calls, or
            `stream` for streamed answers.
        works: Whether the endpoint used the format for this model.
        note: Problem with the format, or "".
    """

    model_config = ConfigDict(frozen=True)

    name: FormatName
    works: bool
    note: str = ""


class EndpointReport(BaseModel):
    """The result of a test, which contains neither the endpoint's key nor any of its text.

    Attributes:
        provider: Name of the provider.
        host: Host of the endpoint, or None if its address has none.
        model: Name of the model.
        asked: Whether requests were sent.
        answers: Whether a plain question was answered.
        latency_ms: Milliseconds of that answer, or None without one.
        problem: Why there was no answer, or "".
        formats: Results by format. Empty without an answer.
    """

    model_config = ConfigDict(frozen=True)

    provider: str
    host: str | None
    model: str
    asked: bool = True
    answers: bool = False
    latency_ms: int | None = None
    problem: str = ""
    formats: tuple[FormatReport, ...] = ()


async def probe_endpoint(
    config: LLMConfig, *, transport: httpx.AsyncBaseTransport | None = None
) -> EndpointReport:
    """Ask an endpoint a short question, once plainly and once in each format.

    The four requests cost about 200 tokens of output together on most models. Errors of the
    endpoint are reported, not raised.

    Args:
        config: The endpoint. Its deadline and cost limit apply.
        transport: Replaces the network, for tests (see `OpenAICompatibleClient`).

    Returns:
        The report.

    Raises:
        ConfigError: If the configuration is unusable.
    """
    report = EndpointReport(
        provider=config.provider, host=host_of(config.base_url), model=config.default_model
    )
    async with OpenAICompatibleClient(config, transport=transport) as client:
        try:
            # First alone: without an answer, the three formats would only repeat the same error.
            answer = await client.chat_completion(_QUESTION, max_tokens=_MAX_TOKENS)
        except LLMError as exc:
            return report.model_copy(update={"problem": exc.message})
        formats = await asyncio.gather(
            *(_probed(name, probe, client) for name, probe in _PROBES.items())
        )
    return report.model_copy(
        update={"answers": True, "latency_ms": answer.latency_ms, "formats": tuple(formats)}
    )


_Probe = Callable[[OpenAICompatibleClient], Awaitable[str]]


async def _probed(name: FormatName, probe: _Probe, client: OpenAICompatibleClient) -> FormatReport:
    try:
        note = await probe(client)
    except LLMError as exc:
        note = exc.message
    return FormatReport(name=name, works=not note, note=note)


async def _ask(client: OpenAICompatibleClient, **options: Any) -> LLMResponse:
    return await client.chat_completion(_QUESTION, max_tokens=_MAX_TOKENS, **options)


async def _json_schema(client: OpenAICompatibleClient) -> str:
    schema = {"name": "answer", "strict": True, "schema": dict(_ANSWER_SCHEMA)}
    answer = await _ask(client, response_format={"type": "json_schema", "json_schema": schema})
    # The client repeats a refused call without the schema.
    if {"json_schema", "response_format"} & {*answer.metadata.get("dropped_options", ())}:
        return "refused"
    reply: object = None
    with suppress(ValueError, TypeError):
        reply = json.loads(str(answer.content))
    if isinstance(reply, Mapping) and reply.get("answer") in ("yes", "no"):
        return ""
    return "accepted, but the answer does not fit the schema"


async def _tools(client: OpenAICompatibleClient) -> str:
    function = {
        "name": "answer",
        "description": "Gives the answer.",
        "parameters": dict(_ANSWER_SCHEMA),
    }
    answer = await _ask(client, tools=[{"type": "function", "function": function}])
    return "" if answer.tool_calls else "accepted, but the model answered without a call"


async def _stream(client: OpenAICompatibleClient) -> str:
    parts = [delta.text async for delta in client.stream(_QUESTION, max_tokens=_MAX_TOKENS)]
    return "" if any(parts) else "accepted, but no text came"


_PROBES: Final[Mapping[FormatName, _Probe]] = MappingProxyType(
    {"json_schema": _json_schema, "tools": _tools, "stream": _stream}
)
