"""`LiteLLMClient`: LiteLLM's `acompletion` as an `LLMClient`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llm_common.core.adapters.external_client import ForeignClient
from llm_common.core.adapters.openai_sdk import arguments_of, payload_of
from llm_common.core.http.wire import ChatRequest

__all__ = ["LiteLLMClient"]


class LiteLLMClient(ForeignClient):
    """Answers through `litellm.acompletion`, or the `acompletion` of a `litellm.Router`.

    Keys and addresses come from where LiteLLM finds them, or from `functools.partial(acompletion, api_key=…)`. The cost
    is the one that the endpoint reports, else LiteLLM's own calculation.

    Args:
        acompletion: The function.
        model: Used when a call names none, with LiteLLM's prefix: `anthropic/claude-sonnet-4-5`.
        timeout_s: Deadline of one call in seconds, retries included.
        prefers_json_schema: As in `LLMConfig`.
    """

    def __init__(
        self,
        acompletion: Callable[..., Awaitable[Any]],
        *,
        model: str,
        timeout_s: float = 60.0,
        prefers_json_schema: bool = False,
    ) -> None:
        super().__init__(model=model, provider="litellm", timeout_s=timeout_s, prefers_json_schema=prefers_json_schema)
        self._acompletion = acompletion

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        answer = await self._acompletion(**arguments_of(request))
        payload = payload_of(answer)
        usage = payload.get("usage") or {}
        if usage.get("cost") is None:
            # Where LiteLLM's documentation says to look for what it calculated.
            usage = usage | {"cost": (getattr(answer, "_hidden_params", None) or {}).get("response_cost")}
        return payload | {"usage": usage}
