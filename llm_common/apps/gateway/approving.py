"""Show and approve what changed in servers and their tools: `pending`, `approve`."""

import shlex
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ServerConfig
from llm_common.apps.gateway.gateway import folder_of
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.tool_listing import shown_description
from llm_common.redaction.redactor import Redactor
from llm_common.text.display import one_line

_MAX_CHARS: Final = 500


class ChangedTool(BaseModel):
    """A tool that differs from what the user approved.

    Attributes:
        name: The tool's name at its server.
        before: The approved description.
        after: The description that the server has listed last.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    before: str
    after: str


class PendingApproval(BaseModel):
    """What waits for the user's approval at one server.

    Attributes:
        server: The server's name.
        starts: What its entry starts or where it sends to, if that is not approved, else "".
        tools: Its changed tools.
    """

    model_config = ConfigDict(frozen=True)

    server: str
    starts: str = ""
    tools: tuple[ChangedTool, ...] = ()


def pending(config: GatewayConfig) -> tuple[PendingApproval, ...]:
    """Return what waits for approval, for the servers of a configuration as it is now."""
    records = _records(config)
    approvals: list[PendingApproval] = []
    for name, entry in config.servers.items():
        record = records.of(entry)
        tools = records.tools_of(name, entry) or ()
        names = records.changed(entry, tools)
        changed: list[ChangedTool] = []
        for tool in tools:
            if tool.name in names:
                before = record.approved[tool.name].description
                after = shown_description(tool)
                changed.append(ChangedTool(name=tool.name, before=before, after=after))
        starts = "" if record.may_start else _starts(entry)
        if starts or changed:
            approvals.append(PendingApproval(server=name, starts=starts, tools=tuple(changed)))
    return tuple(approvals)


def approve(config: GatewayConfig, servers: Iterable[str]) -> None:
    """Approve the entries of servers, and their tools as they were last listed.

    A running gateway takes the approval over within seconds.
    """
    records = _records(config)
    for name in servers:
        records.approve(config.servers[name])


def _records(config: GatewayConfig) -> ServerRecords:
    records = ServerRecords(folder_of(config))
    records.load(config.servers.values())
    return records


def _starts(entry: ServerConfig) -> str:
    """Return what an entry starts, without the values of its variables and headers."""
    parts = [entry.url or shlex.join([entry.command, *entry.args])]
    if entry.cwd:
        parts.append(f"in {entry.cwd}")
    if entry.env:
        parts.append(f"with the variables {', '.join(sorted(entry.env))}")
    if entry.headers:
        parts.append(f"with the headers {', '.join(sorted(entry.headers))}")
    return one_line(Redactor().text(", ".join(parts)), max_chars=_MAX_CHARS)
