"""Show and approve what changed in servers and their tools: `pending`, `approve`."""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from llm_common.agents import Redactor
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ServerConfig
from llm_common.apps.gateway.gateway import folder_of
from llm_common.apps.gateway.servers.records import (
    ApprovedTool,
    ServerRecords,
    changed_names,
    seen_parts,
)
from llm_common.apps.gateway.servers.tool_listing import ServerTool
from llm_common.text import one_line, visible

# Of a command or a part of a tool. The user approves it, so little should be cut.
_MAX_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool that differs from what the user approved.

    Attributes:
        name: The tool's name at its server.
        before: The tool as it was approved.
        after: The tool as the server has listed it last, which an approval approves.
        parts: The other parts that changed, such as `input_schema`, as JSON of what they are now.
    """

    name: str
    before: ApprovedTool
    after: ApprovedTool
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """What waits for the user's approval at one server.

    Attributes:
        server: The server's name.
        starts: What its entry starts or where it sends to, if that is not approved, else "".
        tools: Its changed tools.
    """

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
        names = changed_names(record.approved, tools)
        changed: list[ChangedTool] = []
        for tool in tools:
            if tool.name in names:
                changed.append(_changed(record.approved[tool.name], tool))
        starts = "" if record.may_start else _starts(entry)
        if starts or changed:
            approvals.append(PendingApproval(server=name, starts=starts, tools=tuple(changed)))
    return tuple(approvals)


def approve(config: GatewayConfig, approvals: Iterable[PendingApproval]) -> None:
    """Approve entries, and tools exactly as `pending` returned them.

    A tool that changed since then stays pending. A running gateway takes the approval over within
    seconds.

    Args:
        config: The configuration for which `pending` returned the approvals.
        approvals: What the user approves.
    """
    records = _records(config)
    for approval in approvals:
        tools = {tool.name: tool.after for tool in approval.tools}
        records.approve(config.servers[approval.server], tools)


def _records(config: GatewayConfig) -> ServerRecords:
    records = ServerRecords(folder_of(config))
    records.load(config.servers.values())
    return records


def _changed(before: ApprovedTool, tool: ServerTool) -> ChangedTool:
    after, now = ApprovedTool.of(tool), seen_parts(tool)
    names = {name for name, _ in before.digests.items() ^ after.digests.items()}
    if before.description != after.description:
        names.discard("description")  # both are shown
    parts: dict[str, str] = {}
    for name in sorted(names):
        text = json.dumps(now.get(name), ensure_ascii=False)
        parts[name] = one_line(visible(text), max_chars=_MAX_CHARS)
    return ChangedTool(name=tool.name, before=before, after=after, parts=parts)


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
