"""`llm-common tools`: lists, ranks and checks tool definitions."""

import asyncio
import json as json_lib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    Limit,
    Offset,
    end,
    end_list,
    example,
    print_result,
    say,
    show_progress,
)
from llm_common.errors import ConfigError
from llm_common.text import counted

if TYPE_CHECKING:
    from llm_common.tools import ToolDefinition

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

_SERVER_KEYS = ("mcpServers", "servers")  # of Claude Desktop and Cursor, and of VS Code

tools = typer.Typer(
    name="tools",
    cls=InertErrorGroup,
    help="List, rank and check tools of MCP servers or of a file.",
    no_args_is_help=True,
)
_Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="JSON file with definitions of OpenAI or MCP, or with mcpServers, which are started "
        "to list their tools.",
    ),
]


@tools.command("list", epilog=example("tools list mcp.json"))
def list_(source: _Source, *, limit: Limit = 100, offset: Offset = 0, json: AsJson = False) -> None:
    """List the tools with the tokens that each definition costs in every call.

    The command ends with 3 if the list is empty.
    """
    from llm_common.core import DefaultCounter, counter_label

    counter = DefaultCounter()
    listed = []
    tokens = 0
    for tool in sorted(_read_tools(source, silent=json), key=lambda tool: tool.name):
        tool_tokens = counter.count(tool.text)  # of the whole definition
        listed.append({"name": tool.name, "tokens": tool_tokens, "signature": tool.signature})
        tokens += tool_tokens
    page = listed[offset : offset + limit]
    rows = [tool.values() for tool in page]
    sums = {"total": len(listed), "tokens": tokens, "counter": counter_label()}
    columns = {"Tool": str, "Tokens": int, "Signature": str}
    print_result({**sums, "tools": page}, columns, rows, as_json=json)
    nothing = "There are no tools."
    end_list(len(listed), limit, offset, "tools", nothing=nothing, silent=json)
    if not json:
        say(f"{len(listed):,} tools, {tokens:,} tokens of definitions ({counter_label()})")


@tools.command(epilog=example('tools rank mcp.json "close the ticket"'))
def rank(
    source: _Source,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A user's request.")],
    *,
    limit: Limit = 10,
    json: AsJson = False,
) -> None:
    """Rank the tools for a request by words, as an agent's shortlist does, without a model.

    The command ends with 3 if no tool shares anything with the request.
    """
    from llm_common.tools import ToolIndex

    # The index of the selectors, so the order is the one that an agent would use.
    index = ToolIndex(_read_tools(source, silent=json))
    ranked = [tool for tool in index.rank(request, limit) if tool.why]
    rows = [(tool.name, f"{tool.score:.2f}", tool.why) for tool in ranked]
    document = {"request": request, "total": len(index), "tools": ranked}
    print_result(document, {"Tool": str, "Score": int, "Why": str}, rows, as_json=json)
    if not ranked:
        end(f"None of {len(index):,} tools fits {request[:200]!r}.", ExitCode.NOTHING)


@tools.command(epilog=example("tools check tools.json"))
def check(source: _Source, *, json: AsJson = False) -> None:
    """Report problems of tools: names, schemas, missing descriptions and size.

    The command ends with 1 if a tool cannot be used, and with 0 if there are only warnings.
    """
    from llm_common.core import DefaultCounter
    from llm_common.tools import check_definitions

    definitions, counter = _read_tools(source, silent=json), DefaultCounter()
    problems = check_definitions(definitions, counter=counter)
    errors = sum(problem.severity == "error" for problem in problems)
    rows = [(problem.tool, problem.severity, problem.message) for problem in problems]
    tokens = sum(counter.count(definition.text) for definition in definitions)
    sums = {"total": len(definitions), "tokens": tokens, "errors": errors}
    columns = {"Tool": str, "Severity": str, "Problem": str}
    print_result({**sums, "problems": problems}, columns, rows, as_json=json)
    if not json:
        warnings = len(problems) - errors
        tools_checked = counted(len(definitions), "tool")
        say(f"{tools_checked}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    if errors:
        raise typer.Exit(ExitCode.FAILED)


def _read_tools(source: Path, *, silent: bool) -> "tuple[ToolDefinition, ...]":
    """Return the tools of a file, or of the servers that it names.

    Raises:
        ConfigError: If the file contains neither, or cannot be read.
    """
    from llm_common.tools import read_definitions

    try:
        document = json_lib.loads(source.read_bytes())
    except OSError as exc:
        raise ConfigError(
            f"{source} cannot be read ({exc.strerror}). Name another file", variable="FILE"
        ) from exc
    # The decoder recurses into nested lists.
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{source} is not JSON: {exc}. Correct it", variable="FILE") from exc
    if isinstance(document, dict):
        for key in _SERVER_KEYS:
            if isinstance(document.get(key), dict):
                with show_progress("Starting the servers", silent=silent):
                    return _list_server_tools(source)
    return read_definitions(document)


def _list_server_tools(source: Path) -> "tuple[ToolDefinition, ...]":
    """Start the servers of an `mcpServers` file, and return their tools.

    Raises:
        ConfigError: If the file cannot be used.
        ModuleNotFoundError: If the extra `mcp` is missing.
    """
    from llm_common.apps.gateway import GatewayConfig, mcp_tools

    # Nothing is stored: the servers are listed and never called.
    config = GatewayConfig.from_files(source, max_whole_tokens=None, memory_only=True)
    if config.left_out and not config.servers:
        raise ConfigError("; ".join(config.left_out.values()), variable="FILE")

    async def list_tools() -> "tuple[ToolDefinition, ...]":
        async with mcp_tools(config) as registry:
            return tuple(tool.definition for tool in registry)

    return asyncio.run(list_tools())
