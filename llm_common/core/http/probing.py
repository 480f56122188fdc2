"""`probe_endpoint`: whether an endpoint answers, and which formats it takes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.http.providers import host_of
from llm_common.core.http.transport import SupportsRequests
from llm_common.core.models import LLMConfig, LLMResponse
from llm_common.errors import LLMError

FormatName = Literal["json_schema", "tools", "logprobs", "stream"]

_QUESTION: Final = [{"role": "user", "content": "Is water wet? Answer with one word, yes or no."}]
_MAX_TOKENS: Final = 200  # some models think before they answer
_ANSWER_SCHEMA: Final = MappingProxyType(
    {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
)


class FormatReport(BaseModel):
    """Whether an endpoint takes a format.

    Attributes:
        name: `json_schema`: answers that fit a schema; `tools`: native tool calls; `logprobs`: log
            probabilities, which `LogprobDecisions` needs; `stream`: answers as they are written.
        works: Whether the endpoint used it for this model.
        note: What it did instead; "" if it works.
    """

    model_config = ConfigDict(frozen=True)

    name: FormatName
    works: bool
    note: str = ""


class EndpointReport(BaseModel):
    """What an endpoint does; holds neither its key nor its words.

    Attributes:
        provider: The provider's name.
        host: The endpoint's host.
        model: The model that was asked.
        asked: Whether requests were sent.
        answers: Whether a plain question was answered.
        latency_ms: How long that took.
        problem: Why it was not; "" if it was.
        formats: Its formats; empty if it does not answer.
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
    config: LLMConfig, *, transport: SupportsRequests | None = None
) -> EndpointReport:
    """What the endpoint does with a short question, asked once plainly and once in each format.

    Five requests, of some 200 tokens of output together on most models. No error of the endpoint is
    raised.

    Args:
        config: The endpoint; its deadline and cost limit hold.
        transport: Replaces the network, for tests; see `OpenAICompatibleClient`.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    report = EndpointReport(
        provider=config.provider, host=host_of(config.base_url), model=config.default_model
    )
    async with OpenAICompatibleClient(config, transport=transport) as client:
        try:
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
    if {"json_schema", "response_format"} & {*answer.metadata.get("dropped_options", ())}:
        return "refused"
    found: object = None
    with suppress(ValueError, TypeError):
        found = json.loads(str(answer.content))
    if isinstance(found, Mapping) and found.get("answer") in ("yes", "no"):
        return ""
    return "taken, but the answer does not fit the schema"


async def _tools(client: OpenAICompatibleClient) -> str:
    function = {
        "name": "answer",
        "description": "Gives the answer.",
        "parameters": dict(_ANSWER_SCHEMA),
    }
    answer = await _ask(client, tools=[{"type": "function", "function": function}])
    return "" if answer.tool_calls else "taken, but the model answered without a call"


async def _logprobs(client: OpenAICompatibleClient) -> str:
    answer = await _ask(client, logprobs=True, top_logprobs=2)
    return "" if (answer.logprobs or {}).get("content") else "taken, but the answer has none"


async def _stream(client: OpenAICompatibleClient) -> str:
    parts = [delta.text async for delta in client.stream(_QUESTION, max_tokens=_MAX_TOKENS)]
    return "" if any(parts) else "taken, but no text came"


_PROBES: Final[Mapping[FormatName, _Probe]] = MappingProxyType(
    {"json_schema": _json_schema, "tools": _tools, "logprobs": _logprobs, "stream": _stream}
)
