"""Run a server with everything that the conformance suites ask for, on stdio or over HTTP.

Usage: python full_server.py [PORT | older]. With `older`, it speaks only the older protocols.
"""

import base64
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError, stdio_server
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

HostContext = ServerRequestContext[Any, Any]
Answer = types.CallToolResult | types.InputRequiredResult
Call = Callable[[types.CallToolRequestParams, HostContext], Awaitable[Answer]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\0\0\0\0"
)
PAUSE_S = 0.05
ANYTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

SCHEMA_2020_12: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
DEFAULTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
}
CHOICES = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
ENUMS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": CHOICES},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {"type": "array", "items": {"anyOf": CHOICES}},
    },
}
USER: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}

# Sessions of the older protocol set the level, by the id of the session.
levels: dict[int, str] = {}
bus = InMemorySubscriptionBus()
tool_calls: dict[str, Call] = {}
tools: list[types.Tool] = []


class Events(EventStore):
    """The messages of all streams, for clients that come back after the stream was closed."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, types.JSONRPCMessage | None]] = []

    async def store_event(
        self, stream_id: StreamId, message: types.JSONRPCMessage | None
    ) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        begin = int(last_event_id)
        stream = self._events[begin - 1][0]
        for number, (stream_id, message) in enumerate(self._events[begin:], begin + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def text(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def done(*content: Any, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[*content], is_error=is_error)


def embedded(uri: str, value: str, kind: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=kind, text=value)
    return types.EmbeddedResource(type="resource", resource=resource)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def tool(name: str, schema: Mapping[str, Any] = ANYTHING) -> Callable[[Call], Call]:
    """Add a tool under a name."""

    def add(call: Call) -> Call:
        tools.append(
            types.Tool(
                name=name,
                description=(call.__doc__ or f"Is {name}.").strip(),
                input_schema=dict(schema),
            )
        )
        tool_calls[name] = call
        return call

    return add


def returns(name: str, *content: Any, is_error: bool = False) -> None:
    """Add a tool that returns always the same."""

    async def call(*_: Any) -> Answer:
        return done(*content, is_error=is_error)

    tool(name)(call)


returns("test_simple_text", text("This is a simple text response for testing."))
returns("test_image_content", image())
returns(
    "test_audio_content",
    types.AudioContent(type="audio", data=WAV.decode(), mime_type="audio/wav"),
)
returns(
    "test_embedded_resource",
    embedded("test://embedded-resource", "This is an embedded resource content."),
)
returns(
    "test_multiple_content_types",
    text("Multiple content types test:"),
    image(),
    embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
)
returns(
    "test_error_handling",
    text("This tool intentionally returns an error for testing"),
    is_error=True,
)


@tool("json_schema_2020_12_tool", SCHEMA_2020_12)
async def check_schema(params: types.CallToolRequestParams, _: HostContext) -> Answer:
    return done(text(json.dumps(params.arguments)))


@tool(
    "test_region",
    {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
)
async def name_region(params: types.CallToolRequestParams, _: HostContext) -> Answer:
    """Names a region, which is also in a header."""
    return done(text(str((params.arguments or {}).get("region"))))


async def log(host: HostContext, level: Any, data: str) -> None:
    """Send a log message, unless the host has asked for more important ones only."""
    least = levels.get(id(host.session.client_params), "debug")
    if LEVELS.index(level) >= LEVELS.index(least):
        await host.session.send_log_message(
            level, data, logger="full", related_request_id=host.request_id
        )


@tool("test_tool_with_logging")
async def log_steps(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    for step in ("execution started", "processing data", "execution completed"):
        await log(host, "info", f"Tool {step}")
        await anyio.sleep(PAUSE_S)
    return done(text("logged"))


@tool("test_logging_tool")
async def log_once(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    await log(host, "info", "a message")
    return done(text(f"logged from {levels.get(id(host.session.client_params))}"))


@tool("test_tool_with_progress")
async def report_progress(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    for progress in (0, 50, 100):
        await host.session.report_progress(progress, 100, f"{progress} of 100")
        await anyio.sleep(PAUSE_S)
    return done(text("progressed"))


@tool("test_reconnection")
async def close_stream(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    """Closes the stream of its call, and answers to the client that comes back."""
    if host.close_sse_stream is not None:
        await host.close_sse_stream()
        await anyio.sleep(2 * PAUSE_S)
    return done(text("Reconnected."))


async def ask(host: HostContext, request: types.ServerRequest, answer: Any) -> Any:
    related = ServerMessageMetadata(related_request_id=host.request_id)
    return await host.session.send_request(request, answer, metadata=related)


def sampling(prompt: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def elicitation(message: str, schema: Mapping[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
    )


@tool("test_sampling", {**ANYTHING, "properties": {"prompt": {"type": "string"}}})
async def sample(params: types.CallToolRequestParams, host: HostContext) -> Answer:
    request = sampling(str((params.arguments or {})["prompt"]))
    result = await ask(host, request, types.CreateMessageResult)
    return done(text(f"LLM response: {result.content.text}"))


def elicits(name: str, schema: Mapping[str, Any], label: str) -> None:
    """Add a tool that asks the user during its call."""

    async def call(params: types.CallToolRequestParams, host: HostContext) -> Answer:
        message = str((params.arguments or {}).get("message", "Please answer."))
        result = await ask(host, elicitation(message, schema), types.ElicitResult)
        return done(text(f"{label}: action={result.action}, content={json.dumps(result.content)}"))

    tool(name, {**ANYTHING, "properties": {"message": {"type": "string"}}})(call)


elicits("test_elicitation", USER, "User response")
elicits("test_elicitation_sep1034_defaults", DEFAULTS, "Elicitation completed")
elicits("test_elicitation_sep1330_enums", ENUMS, "Elicitation completed")


def requires(
    name: str, *rounds: Mapping[str, Any], state: bool = False, answer: str = "state-ok"
) -> None:
    """Add a tool of the newest protocol that asks in its answers, once for each round."""

    async def call(params: types.CallToolRequestParams, _: HostContext) -> Answer:
        number = int(params.request_state or 0)
        responses = params.input_responses or {}
        if params.input_responses is not None and not rounds[number].keys() - responses.keys():
            number += 1
        if number < len(rounds):
            return types.InputRequiredResult(
                input_requests=dict(rounds[number]), request_state=str(number) if state else None
            )
        shown = {key: response.model_dump(mode="json") for key, response in responses.items()}
        return done(text(f"{answer} {json.dumps(shown)}"))

    tool(name)(call)


ASK_NAME = elicitation("What is your name?", NAME)
ASK_OK = elicitation("Please confirm", OK)
ASK_ROOTS = types.ListRootsRequest()
requires("test_input_required_result_elicitation", {"user_name": ASK_NAME})
requires(
    "test_input_required_result_sampling",
    {"capital_question": sampling("What is the capital of France?")},
)
requires("test_input_required_result_list_roots", {"client_roots": ASK_ROOTS})
requires("test_input_required_result_request_state", {"confirm": ASK_OK}, state=True)
requires("test_input_required_result_tampered_state", {"confirm": ASK_OK}, state=True)
requires("test_streaming_elicitation", {"confirm": ASK_OK})
requires(
    "test_input_required_result_multiple_inputs",
    {
        "user_name": ASK_NAME,
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ASK_ROOTS,
    },
    state=True,
)
requires(
    "test_input_required_result_multi_round",
    {"step1": elicitation("Step 1: What is your name?", NAME)},
    {"step2": elicitation("Step 2: What is your favorite color?", NAME)},
    state=True,
)


@tool("test_input_required_result_capabilities")
async def ask_what_host_can(params: types.CallToolRequestParams, host: HostContext) -> Answer:
    if params.input_responses:
        return done(text(", ".join(params.input_responses)))
    able = host.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, types.InputRequest] = {}
    if able.sampling is not None:
        requests["sample"] = sampling("Say hello")
    if able.elicitation is not None:
        requests["elicit"] = ASK_NAME
    return types.InputRequiredResult(input_requests=requests, request_state="asked")


@tool("test_missing_capability")
async def need_sampling(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    able = host.session.client_capabilities
    if able is None or able.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs sampling",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return done(text("sampled"))


@tool("test_trigger_tool_change")
async def change_tools(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    """Changes the tools, and announces it."""
    returns(f"added_{len(tools)}", text("added"))
    await bus.publish(ToolsListChanged())
    if host.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await host.session.send_notification(types.ToolListChangedNotification())
    return done(text("changed"))


@tool("test_trigger_prompt_change")
async def change_prompts(_: types.CallToolRequestParams, host: HostContext) -> Answer:
    """Changes the prompts, and announces it."""
    name = f"added_{len(PROMPTS)}"
    PROMPTS[name] = types.Prompt(name=name, description="Was added.")
    await bus.publish(PromptsListChanged())
    if host.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await host.session.send_notification(types.PromptListChangedNotification())
    return done(text("changed"))


def arguments(*names: str) -> list[types.PromptArgument]:
    return [types.PromptArgument(name=name, required=True) for name in names]


PROMPTS: dict[str, types.Prompt] = {
    "test_simple_prompt": types.Prompt(name="test_simple_prompt", description="Is simple."),
    "test_prompt_with_arguments": types.Prompt(
        name="test_prompt_with_arguments",
        description="Has arguments.",
        arguments=arguments("arg1", "arg2"),
    ),
    "test_prompt_with_embedded_resource": types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="Embeds a resource.",
        arguments=arguments("resourceUri"),
    ),
    "test_prompt_with_image": types.Prompt(
        name="test_prompt_with_image", description="Has an image."
    ),
    "test_input_required_result_prompt": types.Prompt(
        name="test_input_required_result_prompt", description="Asks the user."
    ),
}
RESOURCES: Mapping[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": types.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=PNG
    ),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched."
    ),
}


async def list_tools(*_: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=tools)


async def call_tool(host: HostContext, params: types.CallToolRequestParams) -> Answer:
    call = tool_calls.get(params.name)
    if call is None:
        raise MCPError(types.INVALID_PARAMS, f"no tool is called {params.name}")
    try:
        return await call(params, host)
    except MCPError as exc:
        if exc.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY:
            raise
        return done(text(exc.message), is_error=True)


async def list_prompts(*_: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=list(PROMPTS.values()))


async def get_prompt(
    _: HostContext, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt":
        response = (params.input_responses or {}).get("user_context")
        if not isinstance(response, types.ElicitResult):
            schema = {**NAME, "properties": {"context": {"type": "string"}}}
            question = elicitation("What context should the prompt use?", schema)
            return types.InputRequiredResult(input_requests={"user_context": question})
        blocks: list[Any] = [text(f"Context: {json.dumps(response.content)}")]
    elif params.name == "test_prompt_with_arguments":
        filled = f"arg1='{given['arg1']}', arg2='{given['arg2']}'"
        blocks = [text(f"Prompt with arguments: {filled}")]
    elif params.name == "test_prompt_with_embedded_resource":
        resource = embedded(given["resourceUri"], "Embedded resource content for testing.")
        blocks = [resource, text("Please process the embedded resource above.")]
    elif params.name == "test_prompt_with_image":
        blocks = [image(), text("Please analyze the image above.")]
    elif params.name in PROMPTS:
        blocks = [text("This is a simple prompt for testing.")]
    else:
        raise MCPError(types.INVALID_PARAMS, f"no prompt is called {params.name}")
    messages = [types.PromptMessage(role="user", content=block) for block in blocks]
    return types.GetPromptResult(messages=messages)


async def list_resources(*_: Any) -> types.ListResourcesResult:
    resources: list[types.Resource] = []
    for uri, contents in RESOURCES.items():
        name = uri.removeprefix("test://")
        resource = types.Resource(
            uri=uri, name=name, description=f"Is {name}.", mime_type=contents.mime_type
        )
        resources.append(resource)
    return types.ListResourcesResult(resources=resources)


async def list_templates(*_: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="Is a template."
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(
    _: HostContext, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents = RESOURCES.get(uri)
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        contents = types.TextResourceContents(
            uri=uri, mime_type="application/json", text=json.dumps(data)
        )
    if contents is None:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def accept(*_: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def set_level(host: HostContext, params: types.SetLevelRequestParams) -> types.EmptyResult:
    levels[id(host.session.client_params)] = params.level
    return types.EmptyResult()


async def complete(_: HostContext, params: types.CompleteRequestParams) -> types.CompleteResult:
    begin = params.argument.value
    values = [word for word in ("paris", "park", "party") if word.startswith(begin)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values)))


server: Server[Any] = Server(
    "full",
    version="1.0",
    instructions="Ask this server for everything.",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=accept,
    on_unsubscribe_resource=accept,
    on_subscriptions_listen=ListenHandler(bus),
    on_completion=complete,
)
server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
# Signs the state of the questions, so that a host cannot change it.
server.middleware.append(
    RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="full")
)
CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


async def serve_stdio(*, is_older: bool) -> None:
    options = server.create_initialization_options(CHANGES)
    async with stdio_server() as (read, write):
        if is_older:
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
        else:
            await server.run(read, write, options)


def main() -> None:
    [port] = sys.argv[1:] or [""]
    if not port.isdigit():
        anyio.run(partial(serve_stdio, is_older=port == "older"))
    else:
        app = server.streamable_http_app(event_store=Events(), retry_interval=100)
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
