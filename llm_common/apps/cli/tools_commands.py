"""`llm-common tools`: what tools cost, which of them fit a request, and what is wrong with them."""

import asyncio
import json as json_lib
from dataclasses import dataclass
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
    print_json,
    print_rows,
    say,
    say_more,
    show_progress,
)
from llm_common.errors import ConfigError, install_command

if TYPE_CHECKING:
    from llm_common.tools.definitions import ToolDefinition

# A command imports what only it needs when it runs: `--help` and completion answer at once.
# ruff: noqa: PLC0415

_SERVER_KEYS = ("mcpServers", "servers")
_MAX_FILE_BYTES = 50_000_000

tools = typer.Typer(
    name="tools",
    cls=InertErrorGroup,
    help="Tools of MCP servers, or of a file of definitions.",
    no_args_is_help=True,
)
_Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="JSON: definitions in the shape of OpenAI or MCP, or mcpServers, which are started "
        "to ask them.",
    ),
]


@dataclass(frozen=True, slots=True)
class _ListedTool:
    """A tool: its name, the tokens of its definition as it was read, and its signature."""

    name: str
    tokens: int
    signature: str


@tools.command("list")
def list_(source: _Source, *, limit: Limit = 100, offset: Offset = 0, json: AsJson = False) -> None:
    """List the tools with the tokens that each definition costs in every call.

    Ends with 3 where there are none.
    """
    from llm_common.core.tokens import DefaultCounter, counter_label

    found = sorted(_read(source, silent=json), key=lambda tool: tool.name)
    counter = DefaultCounter()
    rows = [
        _ListedTool(name=one.name, tokens=counter.count(one.text), signature=one.signature)
        for one in found
    ]
    tokens, shown = sum(row.tokens for row in rows), rows[offset : offset + limit]
    if json:
        sums = {"total": len(rows), "tokens": tokens, "counter": counter_label()}
        print_json({**sums, "tools": shown})
    else:
        print_rows(
            {"Tool": str, "Tokens": int, "Signature": str},
            ((row.name, row.tokens, row.signature) for row in shown),
        )
    if not rows:
        end("There are no tools.", ExitCode.NOTHING)
    if not json:
        say(f"{len(rows):,} tools, {tokens:,} tokens of definitions ({counter_label()})")
        say_more(len(shown), len(rows), offset, "tools")


@tools.command()
def rank(
    source: _Source,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="What a user asks.")],
    *,
    limit: Limit = 10,
    json: AsJson = False,
) -> None:
    """Rank the tools for a request by their words, as a shortlist does; no model is asked.

    Ends with 3 where no tool fits it better than chance.
    """
    from llm_common.tools.tool_index import ToolIndex

    index = ToolIndex(_read(source, silent=json))
    ranked = index.rank(request, limit)
    if json:
        print_json({"request": request, "total": len(index), "tools": ranked})
    else:
        print_rows(
            {"Tool": str, "Score": int, "Why": str},
            ((one.name, f"{one.score:.2f}", one.why) for one in ranked),
        )
    if not ranked:
        end(f"None of {len(index):,} tools fits {request[:200]!r}.", ExitCode.NOTHING)


@tools.command()
def check(source: _Source, *, json: AsJson = False) -> None:
    """Name what keeps a tool from being used or chosen: names, schemas, missing descriptions, size.

    Ends with 1 if a tool cannot be used; warnings alone end with 0.
    """
    from llm_common.core.tokens import DefaultCounter
    from llm_common.tools.definitions import check_definitions

    found, counter = _read(source, silent=json), DefaultCounter()
    problems = check_definitions(found, counter=counter)
    errors = sum(problem.severity == "error" for problem in problems)
    if json:
        tokens = sum(counter.count(tool.text) for tool in found)
        sums = {"total": len(found), "tokens": tokens, "errors": errors}
        print_json({**sums, "problems": problems})
    else:
        print_rows(
            {"Tool": str, "Severity": str, "Problem": str},
            ((one.tool, one.severity, one.message) for one in problems),
        )
        say(f"{len(found):,} tools: {errors:,} errors, {len(problems) - errors:,} warnings")
    if errors:
        raise typer.Exit(ExitCode.FAILED)


def _read(source: Path, *, silent: bool) -> "tuple[ToolDefinition, ...]":
    """The tools of a file, or of the servers that it names.

    Raises:
        ConfigError: The file holds neither.
    """
    from llm_common.tools.definitions import read_definitions

    try:
        if source.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(
                f"{source} has over {_MAX_FILE_BYTES:,} bytes; name a smaller file", variable="FILE"
            )
        document = json_lib.loads(source.read_bytes())
    except OSError as exc:
        raise ConfigError(
            f"{source} cannot be read ({exc.strerror}); name another file", variable="FILE"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{source} is not JSON; correct it", variable="FILE") from exc
    if isinstance(document, dict) and any(
        isinstance(document.get(key), dict) for key in _SERVER_KEYS
    ):
        with show_progress("Starting the servers", silent=silent):
            return _of_servers(source)
    return read_definitions(document)


def _of_servers(source: Path) -> "tuple[ToolDefinition, ...]":
    """Return the tools of the servers of an `mcpServers` file.

    Raises:
        ConfigError: The extra is missing, or the file cannot be used.
    """
    try:
        from llm_common.apps.gateway import GatewayConfig, mcp_tools
    except ImportError as exc:
        raise ConfigError(
            f"{source} names servers, and their tools need {exc.name}: {install_command('mcp')}; "
            "or name a file of definitions",
            variable="FILE",
        ) from exc
    config = GatewayConfig.from_files(source, max_whole_tokens=None, memory_only=True)

    async def ask() -> "tuple[ToolDefinition, ...]":
        async with mcp_tools(config) as registry:
            return tuple(tool.definition for tool in registry)

    return asyncio.run(ask())
