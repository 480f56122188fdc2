"""Run a server on stdin and stdout with one tool per feature that a gateway passes on."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import (
    AudioContent,
    CallToolResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

server = MCPServer("odd")
BOOK = "".join(f"# Chapter {number}\n\n{'A long tale. ' * 400}\n" for number in range(200))
ROWS = json.dumps([{"row": number, "price": 1.10} for number in range(20_000)], indent=1)
PAGE = f"<html><body>{'<p>shown by the host</p>' * 20_000}</body></html>"
PIXEL = bytes.fromhex("89504e470d0a1a0a")


class Item(BaseModel):
    id: int
    name: str
    note: str = "some words about this thing"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_items(count: int) -> list[Item]:
    """Lists items with their names."""
    return [Item(id=number, name=f"item {number}") for number in range(count)]


@server.tool()
def add_one(number: int) -> int:
    """Adds one."""
    return number + 1


@server.tool()
def get_log(lines: int) -> str:
    """Gives the lines of a log."""
    return "\n".join(f"line {number} of the log" for number in range(lines))


@server.tool(structured_output=False)
def get_picture(words: int) -> list[Any]:
    """Gives a text and a picture."""
    return ["word " * words, Image(data=PIXEL, format="png")]


@server.tool(structured_output=False)
def get_links(words: int) -> list[Any]:
    """Gives a link to a resource, and the text of another."""
    text = TextResourceContents(uri="odd://text", text="word " * words)
    return [
        ResourceLink(name="a", uri="odd://a", type="resource_link"),
        EmbeddedResource(type="resource", resource=text),
    ]


@server.tool(structured_output=False)
def list_links(count: int) -> list[Any]:
    """Gives links to files."""
    return [
        ResourceLink(name=f"file {number}", uri=f"odd://files/{number}", type="resource_link")
        for number in range(count)
    ]


@server.tool(structured_output=False)
def get_page() -> list[Any]:
    """Gives a page that the host shows."""
    page = TextResourceContents(uri="ui://page", mime_type="text/html", text=PAGE)
    return [EmbeddedResource(type="resource", resource=page)]


@server.tool(structured_output=False)
def get_chart() -> CallToolResult:
    """Gives data and a picture and a sound of it."""
    blocks: list[Any] = [
        Image(data=PIXEL, format="png").to_image_content(),
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
    ]
    return CallToolResult(content=blocks, structured_content={"points": [1, 2]})


@server.tool(structured_output=False)
def fail(words: int) -> CallToolResult:
    """Fails with a long text."""
    text = TextContent(type="text", text="word " * words)
    return CallToolResult(content=[text], is_error=True)


@server.tool()
def get_environment() -> dict[str, str]:
    """Gives the variables of this process."""
    return dict(os.environ)


@server.tool()
def end_now() -> str:
    """Ends the process in the middle of a call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def get_pid() -> int:
    """Gives the process's number."""
    return os.getpid()


@server.tool()
async def wait_long(folder: str, context: Context[Any, Any]) -> str:
    """Reports progress, then waits; notes in a file that it was cancelled."""
    await context.report_progress(1, 2, "half")
    await anyio.Path(folder, "began").touch()
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        Path(folder, "cancelled").touch()  # noqa: ASYNC240 - nothing can be awaited any more
        raise
    return "never"


@server.tool()
async def pause(seconds: float, number: int) -> int:
    """Gives the number back after a while."""
    await anyio.sleep(seconds)
    return number


@server.tool()
async def count_roots(context: Context[Any, Any]) -> list[str]:
    """Names the host's folders."""
    return [str(root.uri) for root in (await context.session.list_roots()).roots]


@server.tool()
async def more_tools(context: Context[Any, Any]) -> str:
    """Adds a tool and says so."""
    server.add_tool(lambda: "new", name="new_tool", description="Is new.")
    await context.session.send_tool_list_changed()
    return "added"


@server.tool()
async def say_log(context: Context[Any, Any]) -> str:
    """Writes to the host's log."""
    await context.session.send_log_message("warning", "a word of warning", logger="odd")
    return "said"


@server.tool()
def get_header(context: Context[Any, Any]) -> str:
    """Gives a header of the request."""
    return str((context.headers or {}).get("x-key"))


def route(region: str) -> str:
    """Gives the region."""
    return f"from {region}"


def route_by_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Gives the region, which a header has to name too."""
    return f"by header from {region}"


server.add_tool(route)


@server.tool()
def want_header() -> str:
    """Changes a tool and does not say so."""
    server.remove_tool("route")
    server.add_tool(route_by_header, name="route")
    return "changed"


@server.tool()
def wrong_output() -> CallToolResult:
    """Gives what its own schema does not allow."""
    return CallToolResult(
        content=[TextContent(type="text", text="odd")], structured_content={"result": "no number"}
    )


@server.resource("odd://greeting")
def greeting() -> str:
    """A greeting."""
    return "hello"


@server.resource("odd://book", mime_type="text/markdown")
def book() -> str:
    """A long text."""
    return BOOK


@server.resource("odd://rows", mime_type="application/json")
def rows() -> str:
    """Long data."""
    return ROWS


@server.resource("odd://page", mime_type="text/html")
@server.resource("ui://page", mime_type="text/plain")
def page() -> str:
    """A long page, by its type and by its scheme."""
    return PAGE


@server.resource("odd://binary", mime_type="application/octet-stream")
def binary() -> bytes:
    """Long bytes."""
    return bytes(100_000)


@server.resource("odd://about/{subject}")
def about(subject: str) -> str:
    """What is known of a subject."""
    return f"all about {subject}"


@server.tool()
async def change_resource(uri: str, context: Context[Any, Any]) -> str:
    """Says that a resource changed."""
    await context.notify_resource_updated(uri)
    return "changed"


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    """Subjects that begin so, after what was chosen before."""
    kind = ref.name if isinstance(ref, PromptReference) else ref.uri
    chosen = (context.arguments if context else None) or {}
    return Completion(
        values=[f"{argument.value}pples of {kind} {sorted(chosen.values())}"], has_more=False
    )


@server.prompt()
def summarise(subject: str) -> str:
    """Asks for a summary."""
    return f"Summarise {subject}."


if __name__ == "__main__":
    settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    if settings.get("noise"):
        sys.stderr.write("this line is no protocol\n")
    if pid_file := settings.get("pid_file"):
        Path(pid_file).write_text(str(os.getpid()), encoding="utf-8")
    if settings.get("hang"):
        signal.pause()
    if kind := settings.get("serve"):
        server.run(kind, port=settings["port"])
    else:
        server.run()
