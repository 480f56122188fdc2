"""`llm-common gateway login` and `logout`: the tokens for servers that want OAuth."""

import asyncio
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common.apps.cli.terminal import ExitCode, end, say
from llm_common.errors import ConfigError
from llm_common.text import one_line

if TYPE_CHECKING:
    from llm_common.apps.gateway.configuration.gateway_config import ServerConfig

# A command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415

_MAX_CHARS = 1_000  # of the names in an error

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
