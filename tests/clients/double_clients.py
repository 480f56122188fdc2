"""Doubles of third-party clients, which make real HTTP calls.

They have everything that the adapters rely on. The same tests run against the real clients.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx

# --- openai


class APIConnectionError(Exception):
    pass


class APITimeoutError(APIConnectionError):
    pass


class APIStatusError(Exception):
    def __init__(self, response: httpx.Response, body: object) -> None:
        super().__init__("Error code")
        self.response, self.request, self.body, self.status_code = (
            response,
            response.request,
            body,
            response.status_code,
        )


class Completion:
    def __init__(self, payload: dict[str, Any]) -> None:
        self._payload = payload

    def model_dump(self, *, warnings: bool = True) -> dict[str, Any]:
        return self._payload


class AsyncOpenAI:
    """A double of openai's client, whose `create` sends one POST."""

    def __init__(self, base_url: str, api_key: str, timeout_s: float) -> None:
        self.base_url = base_url
        self._url, self._key, self._timeout_s = f"{base_url}/chat/completions", api_key, timeout_s
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    async def create(self, *, extra_body: Mapping[str, Any] | None = None, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(timeout=self._timeout_s, verify=False) as http:
            try:
                response = await http.post(
                    self._url, json=body | dict(extra_body or {}), headers=headers
                )
            except httpx.TimeoutException as exc:
                raise APITimeoutError from exc
            except httpx.HTTPError as exc:
                raise APIConnectionError from exc
        if response.is_error:
            raise APIStatusError(response, _decoded_error(response))
        if not response.headers["content-type"].startswith("application/json"):
            return response.text
        payload = response.json()
        return Completion(payload) if isinstance(payload, dict) else payload


def _decoded_error(response: httpx.Response) -> object:
    try:
        body = response.json()
    except ValueError:
        return response.text
    return body.get("error", body) if isinstance(body, dict) else body


# --- LiteLLM


def acompletion_of(sdk: AsyncOpenAI) -> Any:
    async def acompletion(*, model: str, **arguments: Any) -> Any:
        answer = await sdk.create(model=model.removeprefix("openai/"), **arguments)
        answer._hidden_params = {"response_cost": 0.0}
        return answer

    return acompletion
