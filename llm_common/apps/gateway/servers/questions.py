"""Pass a server's questions on to its host, with the server's name: `ServerQuestions`."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar, cast, get_args

import mcp_types as types
from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from llm_common.apps.gateway.servers.limits import MAX_WAITING

HostContext = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT")
QuestionT = TypeVar("QuestionT", types.ServerRequest, types.InputRequest)

_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
_QUESTION_KEY: Final = "llm-common/question"
_ANSWER_WAIT_S: Final = 600.0  # of a server, for the user of a host that may never answer
_SERVER_KEY: Final = "llm-common/server"
# A server applies an answer with roots a moment after it arrives, and the SDKs give no sign of it.
_ROOTS_PAUSE_S: Final = 0.2
_ROOTS_WAIT_S: Final = 5.0  # of a call, for a server that is about to ask for roots
# Over HTTP, a question is lost if the host has no stream open, so it is asked again.
_ROOTS_RETRY_S: Final = 2.0
_ROOTS_TRIES: Final = 30


class HostChannel:
    """The way to the host of a session, for the questions of its servers.

    Attributes:
        newest: The context of the host's newest request.
        roots: The folders of a host that accepts no requests, as its newest answer named them.
        log_level: The lowest level of log messages that a host of an older protocol wants, or None
            for all.
    """

    def __init__(self) -> None:
        self.newest: HostContext | None = None
        self.roots: types.ListRootsResult | None = None
        self.log_level: types.LoggingLevel | None = None
        self._has_roots = asyncio.Event()
        self._waiting: Counter[tuple[str, type]] = Counter()

    @contextmanager
    def slot(self, server: str, kind: type) -> Iterator[bool]:
        """Yield whether one more message may wait for the host. The rest of a flood is dropped.

        Args:
            server: The server that sends it.
            kind: The kind of message, each of which has a limit.
        """
        key = server, kind
        self._waiting[key] += 1
        try:
            yield self._waiting[key] <= MAX_WAITING
        finally:
            self._waiting[key] -= 1

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """Return whether the host samples for servers, asks its user and lists its folders."""
        able = self.newest.session.client_capabilities if self.newest else None
        return able or types.ClientCapabilities()

    def accepts_questions(self) -> bool:
        """Return whether servers can ask the host at any time, as in the older protocols."""
        return self.newest is None or self.newest.protocol_version not in MODERN_PROTOCOL_VERSIONS

    def wants_log(self, host: HostContext, level: types.LoggingLevel) -> bool:
        """Return whether a host wants log messages of a level.

        A host of the newest protocol says so in each request, and an older one once.
        """
        if self.log_level and _LEVELS.index(level) < _LEVELS.index(self.log_level):
            return False
        return level in allowed_log_levels(host.protocol_version, host.meta)

    def learn_roots(self, roots: types.ListRootsResult) -> None:
        """Note the folders of the host, for the servers that wait for them."""
        self.roots = roots
        self._has_roots.set()

    async def wait_for_roots(self) -> types.ListRootsResult:
        """Return the folders of the host, as soon as a call has brought them."""
        await self._has_roots.wait()
        assert self.roots is not None
        return self.roots


def with_server_name(question: QuestionT, server: str) -> QuestionT:
    """Return a question with the server's name, so that the user sees which server asks."""
    params = question.params
    changes: dict[str, Any] = {}
    if isinstance(params, types.ElicitRequestFormParams | types.ElicitRequestURLParams):
        changes["message"] = f"[{server}] {params.message}"
    elif isinstance(params, types.CreateMessageRequestParams):
        origin = f"[This request comes from the MCP server {server}.]"
        changes["system_prompt"] = "\n".join(filter(None, [origin, params.system_prompt]))
        changes["metadata"] = {**(params.metadata or {}), _SERVER_KEY: server}
    else:
        return question
    changes["meta"] = {**(params.meta or {}), _SERVER_KEY: server}
    return question.model_copy(update={"params": params.model_copy(update=changes)})


def with_server_names(result: types.InputRequiredResult, server: str) -> types.InputRequiredResult:
    """Return a server's answer that asks the host, with the server's name in its questions."""
    questions: dict[str, types.InputRequest] = {}
    for key, question in (result.input_requests or {}).items():
        questions[key] = with_server_name(question, server)
    return result.model_copy(update={"input_requests": questions or None})


class _OpenCall:
    """A call of a host of the newest protocol, whose server may ask while it runs.

    Args:
        task: The call.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self._questions: asyncio.Queue[types.InputRequest] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def ask(self, question: types.InputRequest) -> Any:
        """Return the host's answer to a question, or an error if it takes too long."""
        self._questions.put_nowait(question)
        try:
            async with asyncio.timeout(_ANSWER_WAIT_S):
                return await self._answers.get()
        except TimeoutError:
            return types.ErrorData(
                code=types.REQUEST_TIMEOUT, message="the host has not answered in time"
            )

    def take_answer(self, params: types.InputResponseRequestParams) -> None:
        """Take the answer to the last question from the host's next call."""
        declined = types.ErrorData(code=types.INVALID_PARAMS, message="the host gave no answer")
        self._answers.put_nowait((params.input_responses or {}).get(_QUESTION_KEY, declined))

    async def next_question(self) -> types.InputRequest | None:
        """Return the next question of the server, or None once the call has ended.

        If the host cancels its call, the call of the server is cancelled too.
        """
        question = asyncio.create_task(self._questions.get())
        is_waiting = True
        try:
            await asyncio.wait({self.task, question}, return_when=asyncio.FIRST_COMPLETED)
            is_waiting = False
            return None if self.task.done() else question.result()
        finally:
            question.cancel()
            if is_waiting:
                self.task.cancel()


class ServerQuestions:
    """The requests of one server for roots, sampling and elicitation.

    A host of an older protocol is asked on the stream of a running call, or on its connection if no
    call runs. A host of the newest protocol accepts no requests. It is asked in the answer to a
    running call, and answers by sending the call again. The server waits for its roots until a
    call brings them. Each question names its server.

    Args:
        server: The server's name.
        channel: The way to the host.
    """

    def __init__(self, server: str, channel: HostChannel) -> None:
        self._server = server
        self._channel = channel
        self._calls: dict[object, HostContext] = {}
        self._open: dict[str, _OpenCall] = {}
        self._open_by_host: dict[int, _OpenCall] = {}
        self._asks_roots = self._asks_roots_at_start = False
        self._sent_roots: types.ListRootsResult | None = None
        self._roots_answered = asyncio.Event()
        self._roots_answered.set()
        self._roots_applied_at = 0.0
        self._roots_lock = asyncio.Lock()

    @property
    def call(self) -> HostContext | None:
        """Return the host's newest call that is running, or None.

        A message of a server does not say which call it belongs to.
        """
        return next(reversed(self._calls.values()), None)

    @contextmanager
    def during(self, host: HostContext | None) -> Iterator[None]:
        """Send the questions inside the block on the stream of a host's call."""
        key = object()
        if host is not None:
            self._calls[key] = host
        try:
            yield
        finally:
            self._calls.pop(key, None)

    def begin(self) -> None:
        """Expect the questions of a process that has just started."""
        self._sent_roots = None
        self.expect_roots_question()

    def expect_roots_question(self) -> None:
        """Let calls wait until the server has asked for roots that have changed."""
        if self._asks_roots_at_start:
            self._roots_answered.clear()

    async def in_rounds(
        self,
        params: types.InputResponseRequestParams,
        host: HostContext,
        work: Callable[[], Coroutine[Any, Any, ResultT]],
    ) -> ResultT | types.InputRequiredResult:
        """Return the result of a call, or a question that its host has to answer before.

        The host answers by sending the call again, and `work` goes on meanwhile.

        Raises:
            MCPError: If the call that the host answers for has ended.
        """
        open_call = self._open.pop(params.request_state or "", None)
        if open_call is not None:
            open_call.take_answer(params)
        elif params.request_state:
            raise MCPError(types.INVALID_PARAMS, "this call has ended; its answer came too late")
        else:
            open_call = _OpenCall(asyncio.create_task(work()))
            self._open_by_host[id(host)] = open_call
            open_call.task.add_done_callback(lambda task: self._close(host, task))
        question = await open_call.next_question()
        if question is None:
            result: ResultT = await open_call.task
            return result
        state = secrets.token_urlsafe()
        self._open[state] = open_call
        open_call.task.add_done_callback(lambda _: self._open.pop(state, None))
        return types.InputRequiredResult(
            input_requests={_QUESTION_KEY: question}, request_state=state
        )

    def _close(self, host: HostContext, task: asyncio.Task[Any]) -> None:
        del self._open_by_host[id(host)]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, because the host may never ask for it

    async def await_roots(self, host: HostContext, announce: Callable[[], Awaitable[None]]) -> None:
        """Wait until the server has the host's current roots, before a call to it.

        Args:
            host: The host of the call.
            announce: Tells the server that the roots have changed.
        """
        open_call = self._open_by_host.get(id(host))
        able = host.session.client_capabilities
        # A host of the newest protocol announces no changes, so it is asked before each call to a
        # server that uses roots, and once before, because a server may ask during this call.
        if open_call and able and able.roots and (self._asks_roots or not self._channel.roots):
            answer = await open_call.ask(types.ListRootsRequest())
            if isinstance(answer, types.ListRootsResult):
                self._channel.learn_roots(answer)
        if not self._asks_roots_at_start:
            return
        async with self._roots_lock:
            roots = self._channel.roots
            if None not in (roots, self._sent_roots) and roots != self._sent_roots:
                self._roots_answered.clear()
                await announce()
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROOTS_WAIT_S):
                    await self._roots_answered.wait()
            # A server that does not ask again must not delay every call.
            self._roots_answered.set()
            await asyncio.sleep(max(self._roots_applied_at - time.monotonic(), 0.0))

    async def list_roots(self, context: ClientRequestContext) -> Any:  # noqa: ARG002
        """Answer a server's question for the folders of the host."""
        self._asks_roots = True
        if not self._calls:
            self._asks_roots_at_start = True
        self._roots_answered.clear()
        answer: Any = None
        try:
            answer = await self._host_roots()
            return answer
        finally:
            if isinstance(answer, types.ListRootsResult):
                self._sent_roots = answer
            self._roots_applied_at = time.monotonic() + _ROOTS_PAUSE_S
            self._roots_answered.set()

    async def _host_roots(self) -> Any:
        if not self._channel.accepts_questions():
            return await self._channel.wait_for_roots()
        answer: Any = None
        for _ in range(_ROOTS_TRIES):
            newest = self._channel.newest
            is_http = newest is not None and newest.request is not None
            answer = await self._ask_host(
                types.ListRootsRequest(),
                types.ListRootsResult,
                timeout_s=_ROOTS_RETRY_S if is_http else None,
            )
            if not isinstance(answer, types.ErrorData) or answer.code != types.REQUEST_TIMEOUT:
                break
        return answer

    async def sample(
        self,
        context: ClientRequestContext,  # noqa: ARG002
        params: types.CreateMessageRequestParams,
    ) -> Any:
        """Answer a server's question for a reply of the host's model."""
        answer: type[BaseModel] = types.CreateMessageResult
        if params.tools is not None or params.tool_choice is not None:
            answer = types.CreateMessageResultWithTools
        return await self._ask_host(types.CreateMessageRequest(params=params), answer)

    async def elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002
        params: types.ElicitRequestParams,
    ) -> Any:
        """Answer a server's question to the host's user."""
        return await self._ask_host(types.ElicitRequest(params=params), types.ElicitResult)

    async def _ask_host(
        self,
        request: types.ServerRequest,
        answer: type[BaseModel],
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a server's request to the host and return the answer, or the host's error."""
        call = self.call
        if open_call := self._open_by_host.get(id(call)):
            return await open_call.ask(cast("types.InputRequest", request))
        host = call or self._channel.newest
        if host is None:
            return types.ErrorData(
                code=types.INVALID_REQUEST, message="no host is connected that could answer"
            )
        related: ServerMessageMetadata | None = None
        if call is not None:
            # Over HTTP, the question is sent on the stream of that call.
            related = ServerMessageMetadata(related_request_id=call.request_id)
        try:
            with self._channel.slot(self._server, ServerQuestions) as is_free:
                if not is_free:
                    return types.ErrorData(
                        code=types.INVALID_REQUEST, message="too many requests wait for the host"
                    )
                return await host.session.send_request(
                    with_server_name(request, self._server), answer, timeout_s, metadata=related
                )
        except MCPError as exc:
            return exc.error
        except ValidationError:
            return types.ErrorData(
                code=types.INTERNAL_ERROR, message="the host's answer is not valid MCP"
            )
