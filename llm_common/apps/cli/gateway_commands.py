"""`llm-common gateway`: serves MCP servers to hosts, and says what it did."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from llm_common._env import GATEWAY_TOKEN, read_text
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    end,
    print_json,
    safe_text,
    say,
)
from llm_common.errors import ConfigError, missing_extra
from llm_common.text.display import one_line

if TYPE_CHECKING:
    from llm_common.apps.gateway.gateway_config import GatewayConfig
    from llm_common.apps.gateway.serving import GatewayReport

# A command imports what only it needs when it runs.
# ruff: noqa: PLC0415

_EXTRA = frozenset({"mcp", "mcp_types", "starlette", "uvicorn"})
_MAX_CHARS = 300  # of what a server says of itself

gateway = typer.Typer(
    cls=InertErrorGroup,
    invoke_without_command=True,
    help="Stand in front of MCP servers: `llm-common gateway -c FILE`.",
)

_Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="mcpServers JSON, as hosts have it; repeatable."
    ),
]
_Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        help="Where results are kept.",
        show_default="in the user's cache folder",
    ),
]
_Globs = list[str] | None
_Port = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65_535,
        help="Serve over HTTP on 127.0.0.1 instead of stdin, and say at which address; "
        "0 takes a free port.",
    ),
]


@gateway.callback()
def serve(
    context: typer.Context,
    *,
    config: _Config = None,
    tools: Annotated[
        Literal["all", "search", "auto"],
        typer.Option(
            help="List all tools, or tools to search and call; "
            "auto searches above --max-tool-tokens."
        ),
    ] = "auto",
    max_tool_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens of definitions up to which auto lists all.")
    ] = 10_000,
    pin: Annotated[
        _Globs, typer.Option(metavar="GLOB", help="List such tools always; repeatable.")
    ] = None,
    allow: Annotated[
        _Globs, typer.Option(metavar="GLOB", help="Only such tools: tool or server/tool.")
    ] = None,
    deny: Annotated[_Globs, typer.Option(metavar="GLOB", help="No such tools; repeatable.")] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only tools that change nothing.")
    ] = False,
    list_found: Annotated[
        bool, typer.Option("--list-found", help="List what a search found from then on.")
    ] = False,
    max_whole_tokens: Annotated[
        int, typer.Option(min=200, help="Tokens over which a result becomes a preview.")
    ] = 2_000,
    max_preview_tokens: Annotated[
        int, typer.Option(min=200, help="Maximum tokens of a preview.")
    ] = 400,
    intent: Annotated[
        bool, typer.Option(help="Offer an argument that previews are made for.")
    ] = True,
    host_prefix: Annotated[str, typer.Option(help="What the host puts before tool names.")] = "",
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Start servers when they are needed first.")
    ] = False,
    memory_only: Annotated[
        bool, typer.Option("--memory-only", help="Write nothing to disk.")
    ] = False,
    folder: _Folder = None,
    call_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="How long a call may take; else as the host waits."
        ),
    ] = None,
    ttl: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long results are kept.")
    ] = 86_400,
    http: _Port = None,
) -> None:
    """Serve the tools of MCP servers, with large results behind previews that can be read in parts.

    The host starts this command in place of its servers, or reaches it over HTTP with the token in
    LLM_COMMON_GATEWAY_TOKEN; without one a token is made and shown.
    """
    if context.invoked_subcommand is not None:
        return
    rules = {"allow": tuple(allow or ["*"]), "deny": tuple(deny or ()), "pinned": tuple(pin or ())}
    settings = _configured(
        config,
        tools=tools,
        max_tool_tokens=max_tool_tokens,
        rules={**rules, "read_only": read_only},
        list_found=list_found,
        max_whole_tokens=max_whole_tokens,
        max_preview_tokens=max_preview_tokens,
        intent=intent,
        host_prefix=host_prefix,
        lazy=lazy,
        memory_only=memory_only,
        folder=folder,
        call_timeout_s=call_timeout,
        ttl_s=ttl,
    )
    with _extra():
        asyncio.run(_serving(settings, http))


@gateway.command()
def status(*, folder: _Folder = None, json: AsJson = False) -> None:
    """Say what the gateways did: servers, tools, tokens not sent and tokens read back.

    Ends with 3 if none has run.
    """
    settings = _configured([], folder=folder)
    with _extra():
        from llm_common.apps.gateway.serving import reports

    found = reports(settings)
    if json:
        print_json(found)
    for report in () if json else found:
        _show(report, f"pid {report.pid}, {'running' if report.running else 'ended'}")
    if not found:
        end("No gateway has run.", ExitCode.NOTHING)


@gateway.command()
def doctor(*, config: _Config = None, json: AsJson = False) -> None:
    """Start every server once and say what it gives, or what is wrong with it.

    Ends with 1 if something is.
    """
    settings = _configured(config)
    with _extra():
        from llm_common.apps.gateway.serving import examine

        found = asyncio.run(examine(settings))
    if json:
        print_json(found)
    else:
        _show(found, "checked")
    if any(server.problem or server.left_out for server in found.servers):
        raise typer.Exit(ExitCode.FAILED)


async def _serving(config: "GatewayConfig", http: int | None) -> None:
    from llm_common.apps.gateway.serving import serve_http, serve_stdio

    if http is None:
        await serve_stdio(config)
        return
    given = (read_text(GATEWAY_TOKEN) or "").split()
    tokens = given or [secrets.token_hex(16)]

    def tell(address: str) -> None:
        say(f"Serving at {address}")
        if not given:
            say(f"token: {tokens[0]}")

    await serve_http(config, tokens=tokens, port=http, tell=tell)


def _configured(paths: list[Path] | None, **settings: Any) -> "GatewayConfig":
    with _extra():
        from llm_common.apps.gateway.gateway_config import GatewayConfig
    if paths is None:
        raise ConfigError(
            "no servers are named; give their file with --config FILE", variable="config"
        )
    return GatewayConfig.from_files(*paths, **settings)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise missing_extra(f"the gateway needs {exc.name}", "mcp") from exc


def _show(report: "GatewayReport", title: str) -> None:
    """Prints a report, each fact on a line; the texts are those of servers."""
    lines = [title]
    for server in report.servers:
        lines.append(
            f"  {_inert(server.name)}: {_inert(server.problem) or f'{server.tools} tools'}"
        )
        lines += [f"    left out: {_inert(entry)}" for entry in server.left_out]
    lines.append(
        f"  definitions: {report.tokens_of_all:,} tokens in all, {report.tokens_listed:,} listed"
    )
    if report.calls:
        lines.append(
            f"  {report.calls:,} calls, {report.results_kept:,} results kept, "
            f"{report.tokens_not_sent:,} tokens not sent, "
            f"{report.tokens_read_back:,} tokens read back"
        )
    typer.echo("\n".join(lines))


def _inert(text: str) -> str:
    return safe_text(one_line(text, max_chars=_MAX_CHARS)).plain
