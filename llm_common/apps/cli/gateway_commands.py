"""`llm-common gateway`: serves MCP servers to hosts, reports on them, and sets both up."""

import asyncio
import json as json_lib
import secrets
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    DryRun,
    ExitCode,
    InertErrorGroup,
    Yes,
    confirm,
    end,
    example,
    print_json,
    safe_line,
    safe_text,
    say,
)
from llm_common.errors import ConfigError
from llm_common.runtime import GATEWAY_TOKEN, default_config_dir, read_text
from llm_common.text import one_line

if TYPE_CHECKING:
    from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ServerConfig
    from llm_common.apps.gateway.configuration.install import HostPlan
    from llm_common.apps.gateway.serving import GatewayReport

# A command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415

_MAX_CHARS = 1_000  # of the names in an error

gateway = typer.Typer(
    cls=InertErrorGroup,
    invoke_without_command=True,
    help="Serve MCP servers through one gateway: `llm-common gateway -c FILE`.",
)

_Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration file of a host, with its servers. Repeatable.",
    ),
]
_Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        help="Folder for stored results.",
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
        help="Serve over HTTP on this port of 127.0.0.1 instead of stdin, and print the address. "
        "0 takes a free port.",
    ),
]

_Host = Annotated[
    Literal[
        "claude-code",
        "claude-desktop",
        "cline",
        "codex",
        "cursor",
        "gemini-cli",
        "opencode",
        "qwen-code",
        "roo-code",
        "vscode",
        "windsurf",
        "zed",
    ],
    typer.Argument(metavar="HOST", help="The host.", show_default=False),
]
_Scope = Annotated[
    Literal["user", "project"],
    typer.Option(help="Write the user's file, or the one in the working folder."),
]
_Name = Annotated[str, typer.Argument(metavar="SERVER", help="The server's name in the file.")]
_LoginConfig = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration file with the server. By default the files of gateway install. "
        "Repeatable.",
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
            help="List all tools, or only tools to search and call them. auto lists all up to "
            "--max-tool-tokens."
        ),
    ] = "auto",
    max_tool_tokens: Annotated[
        int,
        typer.Option(
            metavar="TOKENS", min=0, help="Tokens of definitions up to which auto lists all tools."
        ),
    ] = 10_000,
    pin: Annotated[
        _Globs, typer.Option(metavar="GLOB", help="Always list matching tools. Repeatable.")
    ] = None,
    allow: Annotated[
        _Globs, typer.Option(metavar="GLOB", help="Offer only matching tools: tool or server/tool.")
    ] = None,
    deny: Annotated[
        _Globs, typer.Option(metavar="GLOB", help="Hide matching tools. Repeatable.")
    ] = None,
    whole: Annotated[
        _Globs,
        typer.Option(
            metavar="GLOB", help="Keep results of matching tools whole up to 25,000 tokens."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer only tools marked read-only.")
    ] = False,
    max_whole_tokens: Annotated[
        int,
        typer.Option(
            metavar="TOKENS", min=200, help="Replace a result with more tokens by a preview."
        ),
    ] = 2_000,
    max_preview_tokens: Annotated[
        int, typer.Option(metavar="TOKENS", min=200, help="Maximum tokens of a preview.")
    ] = 400,
    host_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="Prefix that the host adds to tool names.")
    ] = "",
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Start a server only when it is needed.")
    ] = False,
    list_wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            help="Seconds that a list of tools waits for servers that it does not know yet.",
        ),
    ] = 2.0,
    approve_changes: Annotated[
        bool,
        typer.Option(
            "--approve-changes",
            help="Hold tools back whose definitions changed, until `gateway approve`.",
        ),
    ] = False,
    memory_only: Annotated[
        bool, typer.Option("--memory-only", help="Write nothing to disk.")
    ] = False,
    folder: _Folder = None,
    call_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Timeout of a call. By default the host decides."
        ),
    ] = None,
    ttl: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, help="Lifetime of a result after it was stored or read."
        ),
    ] = 86_400,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Remove a host's results when it leaves. By default a resumed one reads them.",
        ),
    ] = False,
    http: _Port = None,
) -> None:
    """Serve the tools of MCP servers, and replace large results by previews with a pointer.

    The host starts this command instead of its servers. With --http it connects with the token in
    LLM_COMMON_GATEWAY_TOKEN. If that is not set, the command generates a token and prints it.
    """
    if context.invoked_subcommand is not None:  # typer calls this before `doctor` too
        return
    settings: dict[str, Any] = {
        "tools": tools,
        "max_tool_tokens": max_tool_tokens,
        "rules": {
            "allow": tuple(allow or ["*"]),
            "deny": tuple(deny or ()),
            "pinned": tuple(pin or ()),
            "whole": tuple(whole or ()),
            "read_only": read_only,
        },
        "max_whole_tokens": max_whole_tokens,
        "max_preview_tokens": max_preview_tokens,
        "host_prefix": host_prefix,
        "lazy": lazy,
        "list_wait_s": list_wait,
        "approve_changes": approve_changes,
        "memory_only": memory_only,
        "folder": folder,
        "call_timeout_s": call_timeout,
        "ttl_s": ttl,
        "forget": forget,
    }
    gateway_config = _read_config(config, **settings)
    # Imports the server, for which a package of the extra may be missing.
    asyncio.run(_serve(gateway_config, http))


@gateway.command(epilog=example("gateway doctor --config mcp.json"))
def doctor(*, config: _Config = None, json: AsJson = False) -> None:
    """Start every server once, and report its tools or its problem.

    The command ends with 1 if a server or a tool cannot be used.
    """
    settings = _read_config(config)
    from llm_common.apps.gateway.serving import examine

    report = asyncio.run(examine(settings))
    if json:
        print_json(report)
    else:
        _show(report)
    if any(server.problem or server.left_out for server in report.servers):
        raise typer.Exit(ExitCode.FAILED)


@gateway.command(epilog=example("gateway approve --config mcp.json"))
def approve(*, config: _Config = None, folder: _Folder = None, yes: Yes = False) -> None:
    """Show new servers of the files and changed tools, and approve exactly what was shown.

    A running gateway starts what an entry names only after this command or a restart, because an
    agent may have written the file.
    """
    settings = _read_config(config, folder=folder)
    from llm_common.apps.gateway.servers.records import approve as approve_servers, pending

    approvals = pending(settings)
    if not approvals:
        say("Nothing waits for approval.")
        return
    for approval in approvals:
        if approval.starts:
            starts = safe_text(approval.starts).plain
            typer.echo(f"{safe_line(approval.server)}: starts {starts}")
        for tool in approval.tools:
            typer.echo(f"{safe_line(approval.server)}: its tool {safe_line(tool.name)} changed")
            for line in tool.lines:
                typer.echo(f"  {safe_text(line).plain}")
    confirm("Approve this?", yes=yes)
    approve_servers(settings, approvals)


@gateway.command(epilog=example("gateway install claude-code", "gateway install codex --dry-run"))
def install(
    host: _Host,
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- OPTIONS", help="Options of llm-common gateway.", show_default=False
        ),
    ] = None,
    *,
    scope: _Scope = "user",
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File with the servers of the gateway. By default the servers of the host's file "
            "move to the gateway. Repeatable.",
        ),
    ] = None,
    dry_run: DryRun = False,
    show_entry: Annotated[
        bool, typer.Option("--print", help="Print the entry for the host's file. Write nothing.")
    ] = False,
) -> None:
    """Put the gateway into the configuration of a host, in front of the host's servers.

    The rest of the file stays as it is, and a copy is kept beside it. A second run changes nothing,
    or takes over servers that were added to the host meanwhile.
    """
    from llm_common.apps.gateway.configuration.install import plan_install
    from llm_common.apps.gateway.configuration.known_hosts import HOSTS

    plan = plan_install(HOSTS[host], scope, config=config or (), options=options or ())
    if show_entry:
        typer.echo(
            json_lib.dumps(
                {HOSTS[host].entry_name(scope): plan.entry}, indent=2, ensure_ascii=False
            )
        )
        return
    _carry_out(plan, dry_run=dry_run, moved="moved to the gateway")
    for name in plan.remote:
        say(
            f"If {safe_line(name)} asks for a login: llm-common gateway login {safe_line(name)} "
            f"--config {plan.servers_file}"
        )
    if plan.changes and not dry_run:
        say(f"Restart {host}. Its permission rules have to name the tools of the gateway now.")


@gateway.command(epilog=example("gateway uninstall claude-code"))
def uninstall(host: _Host, *, scope: _Scope = "user", dry_run: DryRun = False) -> None:
    """Take the gateway out of the configuration of a host, and put the host's servers back."""
    from llm_common.apps.gateway.configuration.install import plan_uninstall
    from llm_common.apps.gateway.configuration.known_hosts import HOSTS

    plan = plan_uninstall(HOSTS[host], scope)
    _carry_out(plan, dry_run=dry_run, moved="moved back")


@gateway.command(epilog=example("gateway login linear"))
def login(
    server: _Name,
    *,
    config: _LoginConfig = None,
    browser: Annotated[
        bool, typer.Option(help="Open the browser, or only print the address.")
    ] = True,
) -> None:
    """Log in to a server that wants OAuth, in the browser, and keep its token.

    The token is kept in the user's configuration folder and sent to this server's address only. The
    gateway renews it. Nothing else ever starts a login.
    """
    entry = _server(server, config)
    from llm_common.apps.gateway.servers.logins import LoginError, LoginStore
    from llm_common.apps.gateway.servers.oauth_login import log_in

    def show(url: str) -> None:
        say(f"Log in at {url}")
        if browser:
            # In a thread, because a browser for the terminal runs until it is closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    earlier = LoginStore().load(entry.url)
    try:
        new = asyncio.run(log_in(entry, show=show, scope=earlier.wanted_scope if earlier else ""))
    except LoginError as exc:
        end(f"{server}: {exc}", ExitCode.FAILED)
    LoginStore().save(new)
    say(f"Logged in to {server} at {new.issuer}.")


@gateway.command(epilog=example("gateway logout linear"))
def logout(server: _Name, *, config: _LoginConfig = None) -> None:
    """Delete the token of a server. The command ends with 3 if there is none."""
    entry = _server(server, config)
    from llm_common.apps.gateway.servers.logins import LoginStore

    if not LoginStore().remove(entry.url):
        end(f"There is no login to {server}.", ExitCode.NOTHING)
    say(f"Logged out of {server}.")


async def _serve(config: "GatewayConfig", http: int | None) -> None:
    from llm_common.apps.gateway.serving import serve_http, serve_stdio

    if http is None:
        await serve_stdio(config)
        return
    # Several tokens, separated by spaces: hosts without sessions need one each.
    configured_tokens = (read_text(GATEWAY_TOKEN) or "").split()
    tokens = configured_tokens or [secrets.token_hex(16)]

    def tell(address: str) -> None:
        say(f"Serving at {address}")
        if not configured_tokens:  # a secret of the environment stays out of logs
            say(f"token: {tokens[0]}")

    await serve_http(config, tokens=tokens, port=http, on_listening=tell)


def _read_config(paths: list[Path] | None, **settings: Any) -> "GatewayConfig":
    if paths is None:
        raise ConfigError("no servers are named. Add --config FILE with them", variable="config")
    from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig

    return GatewayConfig.from_files(*paths, **settings)


def _show(report: "GatewayReport") -> None:
    """Print a report. Its texts come from servers, so each is made one harmless line."""
    lines = ["checked"]
    for server in report.servers:
        state = safe_line(server.problem) or f"{server.tools} tools"
        lines.append(f"  {safe_line(server.name)}: {state}")
        for entry in server.left_out:
            lines.append(f"    left out: {safe_line(entry)}")
    for rule in report.idle_rules:
        lines.append(f"  the rule {safe_line(rule)} matches no tool")
    lines.append(f"  listed: {_listed(report)}")
    typer.echo("\n".join(lines))


def _listed(report: "GatewayReport") -> str:
    """Return what the list costs or saves, compared with the servers without a gateway."""
    difference = report.tokens_listed - report.tokens_of_all
    compared = f"{difference:+,} over" if difference >= 0 else f"{-difference:,} under"
    other_mode = "all" if report.searched else "search"
    return (
        f"{report.tokens_listed:,} tokens, {compared} the servers' own {report.tokens_of_all:,}; "
        f"with --tools {other_mode} {report.tokens_otherwise:,}"
    )


def _carry_out(plan: "HostPlan", *, dry_run: bool, moved: str) -> None:
    for name, reason in plan.kept.items():
        say(f"{safe_line(name)} stays: {safe_line(reason)}")
    if dry_run:
        for change in plan.changes:
            typer.echo(safe_text(change.diff()).plain, nl=False)
        return
    if not plan.changes:
        end("Nothing to change.", ExitCode.OK)
    for change in plan.changes:
        backup = change.apply()
        copy = f", the old one is {backup}" if backup else ""
        say(f"{'removed' if change.after is None else 'wrote'} {change.path}{copy}")
    for name in plan.moved:
        say(f"{safe_line(name)} {moved}")


def _server(name: str, paths: list[Path] | None) -> "ServerConfig":
    if paths is None:
        folder = default_config_dir() / "gateway"
        paths = sorted([*folder.glob("*.json"), *folder.glob("*.toml")])
    servers = _read_config(paths).servers
    remote = [other for other, server in servers.items() if server.url]
    if name not in remote:
        names = one_line(", ".join(remote) or "none", max_chars=_MAX_CHARS)
        reason = f"there is no server {name}"
        if name in servers:
            reason = f"{name} is a program on this machine, which needs no login"
        raise ConfigError(
            f"{reason}. Servers with an address: {names}. Choose one, or name its file with "
            "--config",
            variable="server",
        )
    return servers[name]
