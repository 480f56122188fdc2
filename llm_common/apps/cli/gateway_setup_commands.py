"""`llm-common gateway install`, `uninstall`, `login` and `logout`: what is set up once.

The first two change the configuration of a host, and the others keep the tokens of servers.
"""

import asyncio
import json
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llm_common.apps.cli.terminal import DryRun, ExitCode, end, safe_line, safe_text, say
from llm_common.errors import ConfigError
from llm_common.text import one_line

if TYPE_CHECKING:
    from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
    from llm_common.apps.gateway.configuration.install import HostPlan

# A command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415

_MAX_CHARS = 1_000  # of the names in an error

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
_Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration file with the server. By default the files of gateway install. "
        "Repeatable.",
    ),
]


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
            json.dumps({HOSTS[host].entry_name(scope): plan.entry}, indent=2, ensure_ascii=False)
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


def uninstall(host: _Host, *, scope: _Scope = "user", dry_run: DryRun = False) -> None:
    """Take the gateway out of the configuration of a host, and put the host's servers back."""
    from llm_common.apps.gateway.configuration.install import plan_uninstall
    from llm_common.apps.gateway.configuration.known_hosts import HOSTS

    plan = plan_uninstall(HOSTS[host], scope)
    _carry_out(plan, dry_run=dry_run, moved="moved back")


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


if TYPE_CHECKING:
    from llm_common.apps.gateway.configuration.gateway_config import ServerConfig

# A command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415


def login(
    server: _Name,
    *,
    config: _Config = None,
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


def logout(server: _Name, *, config: _Config = None) -> None:
    """Delete the token of a server. The command ends with 3 if there is none."""
    entry = _server(server, config)
    from llm_common.apps.gateway.servers.logins import LoginStore

    if not LoginStore().remove(entry.url):
        end(f"There is no login to {server}.", ExitCode.NOTHING)
    say(f"Logged out of {server}.")


def _server(name: str, paths: list[Path] | None) -> "ServerConfig":
    from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
    from llm_common.runtime import default_config_dir

    if paths is None:
        folder = default_config_dir() / "gateway"
        paths = sorted([*folder.glob("*.json"), *folder.glob("*.toml")])
    servers = GatewayConfig.from_files(*paths).servers
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
