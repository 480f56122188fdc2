"""Keep what a gateway knows of its servers between runs: `ServerRecords`."""

import hashlib
import json
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.agents import Redactor
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ServerConfig
from llm_common.apps.gateway.servers.limits import MAX_LIST_BYTES
from llm_common.apps.gateway.servers.tool_listing import (
    ServerTool,
    shown_description,
    visible_schema,
)
from llm_common.apps.gateway.servers.transport import Wire
from llm_common.errors import StoreError
from llm_common.runtime import ForkSafeLock
from llm_common.storage import BlobStore, FileBlobStore, MemoryBlobStore
from llm_common.text import one_line, stable_json, visible

_log = logging.getLogger(__name__)

MAX_RECORDS: Final = 300
"""Files of records that are kept. Each working folder may have its own for the same server."""

_FOLDER: Final = "servers"
# Fields that only this gateway reads.
_NOT_STARTED: Final = {"rules", "start_timeout_s", "call_timeout_s"}
# A record has its tools by name, so a name never changes.
_SEEN_FIELDS: Final = {"title", "description", "input_schema", "annotations"}
# Some 250 tokens, which a host sends with every request of its model.
_MAX_INSTRUCTIONS_CHARS: Final = 1_000
# A server may write the same keys in another order for hosts of another protocol.
_ENCODER: Final = json.JSONEncoder(sort_keys=True)
# Of a command or a part of a tool. The user approves it, so little should be cut.
_MAX_CHARS: Final = 4_000


class ApprovedTool(BaseModel):
    """A tool as the user first saw it or last approved it.

    Attributes:
        digests: The SHA-256 of each part of its definition that a user sees.
        description: Its description.
    """

    model_config = ConfigDict(frozen=True)

    digests: Mapping[str, str]
    description: str = ""

    @classmethod
    def of(cls, tool: ServerTool) -> Self:
        """Return a tool as it is now."""
        return cls(digests=_part_digests(tool), description=shown_description(tool))


class ServerRecord(BaseModel):
    """What a gateway knows of the server of one configuration entry.

    Attributes:
        tools: The definitions of its last answer.
        instructions: What it tells hosts about itself, as far as the gateway passes it on.
        approved: The tools by name, as they were first seen or last approved.
        may_start: Whether the user approved the entry, or started a gateway with it.
    """

    model_config = ConfigDict(frozen=True)

    tools: tuple[types.Tool, ...] | None = None
    instructions: str = ""
    approved: Mapping[str, ApprovedTool] = Field(default_factory=dict)
    may_start: bool = False


class ServerRecords:
    """The records of servers, in files that only their user can read.

    A record belongs to everything in an entry that decides what is started or sent, so a changed
    entry begins with an empty record. Methods read and write files, and several threads may call
    them. A record that cannot be read or written counts as empty, and a log line says so.

    Args:
        folder: The gateway's folder. None keeps the records in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._blobs: BlobStore = MemoryBlobStore()
        if folder is not None:
            self._blobs = FileBlobStore(folder, durability="rename")
        self._records: dict[str, ServerRecord] = {}
        self._lock = ForkSafeLock()

    def etag(self) -> object:
        """Return a value that changes with the files, or None if they changed just now."""
        return self._blobs.folder_etag(_FOLDER)

    def load(self, servers: Iterable[ServerConfig]) -> None:
        """Read the records of servers again, since another process may have changed them."""
        for config in servers:
            digest = entry_digest(config)
            with suppress(StoreError):  # mostly because there is none
                record = _parsed(self._blobs.get(_key(digest), max_bytes=MAX_LIST_BYTES))
                if record is not None:
                    self._records[digest] = record

    def prune(self) -> None:
        """Delete records that are not in use, those that changed longest ago first."""
        with suppress(StoreError):
            blobs = self._blobs.scan(_FOLDER).blobs
            unused = blobs.keys() - {f"{digest}.json" for digest in self._records}
            oldest_first = sorted(unused, key=lambda name: blobs[name].modified_s)
            for name in oldest_first[: max(len(blobs) - MAX_RECORDS, 0)]:
                self._blobs.delete(f"{_FOLDER}/{name}")

    def of(self, config: ServerConfig) -> ServerRecord:
        """Return the record of a server, as it was last loaded or changed."""
        return self._records.get(entry_digest(config), ServerRecord())

    def tools_of(self, name: str, config: ServerConfig) -> tuple[ServerTool, ...] | None:
        """Return the tools that a server listed last, or None if they are not known."""
        definitions = self.of(config).tools
        return None if definitions is None else server_tools(name, definitions, Wire())

    def note_tools(
        self, config: ServerConfig, tools: Sequence[ServerTool], instructions: str = ""
    ) -> None:
        """Keep the tools that a server has listed. Tools that were never seen are approved."""
        seen = {tool.name: ApprovedTool.of(tool) for tool in tools}
        definitions = tuple(tool.definition for tool in tools)

        def change(record: ServerRecord) -> ServerRecord:
            # What was approved stays, also for a tool that has gone: it may come back changed.
            approved = {**seen, **record.approved}
            shown = visible(instructions[:_MAX_INSTRUCTIONS_CHARS])
            return record.model_copy(
                update={"tools": definitions, "instructions": shown, "approved": approved}
            )

        self._change(config, change)

    def allow(self, servers: Iterable[ServerConfig]) -> None:
        """Note entries with which the user has started a gateway."""
        for config in servers:
            if not self.of(config).may_start:
                self._change(config, lambda record: record.model_copy(update={"may_start": True}))

    def approve(self, config: ServerConfig, tools: Mapping[str, ApprovedTool]) -> None:
        """Allow a running gateway to start an entry, and approve tools as the user saw them."""

        def change(record: ServerRecord) -> ServerRecord:
            # Not as they were last listed: the server may have changed them while the user read.
            approved = {**record.approved, **tools}
            return record.model_copy(update={"may_start": True, "approved": approved})

        self._change(config, change)

    def _change(self, config: ServerConfig, change: Callable[[ServerRecord], ServerRecord]) -> None:
        digest = entry_digest(config)
        with self._lock:

            def changed_bytes(old: bytes | None) -> bytes:
                record = _parsed(old) or self._records.get(digest) or ServerRecord()
                self._records[digest] = change(record)
                # As the server wrote it, since `null` is no value of some fields.
                text = self._records[digest].model_dump_json(by_alias=True, exclude_unset=True)
                return text.encode()

            try:
                self._blobs.update(_key(digest), changed_bytes, max_bytes=MAX_LIST_BYTES)
            except StoreError as exc:
                _log.warning("the record of a server cannot be written: %s", exc.message)


def server_tools(
    server: str, definitions: Iterable[types.Tool], wire: Wire
) -> tuple[ServerTool, ...]:
    """Return the tools of a server's definitions, and only the first of each name."""
    tools: dict[str, ServerTool] = {}
    for tool in definitions:
        if tool.name in tools:
            wire.leave_out(tool.name, "another tool has its name")
            continue
        tools[tool.name] = ServerTool(
            server=server,
            name=tool.name,
            description=visible(tool.description or ""),
            parameters=visible_schema(tool.input_schema),
            read_only=tool.annotations.read_only_hint if tool.annotations else None,
            definition=tool,
        )
    return tuple(tools.values())


def changed_names(
    approved: Mapping[str, ApprovedTool], tools: Iterable[ServerTool]
) -> frozenset[str]:
    """Return the names of the tools whose definitions differ from the approved ones."""
    names: set[str] = set()
    for tool in tools:
        last = approved.get(tool.name)
        if last is not None and last.digests != _part_digests(tool):
            names.add(tool.name)
    return frozenset(names)


def entry_digest(config: ServerConfig) -> str:
    """Return the SHA-256 of everything in an entry that decides what is started or sent."""
    entry = config.model_dump(mode="json", exclude=_NOT_STARTED)
    return hashlib.sha256(stable_json(entry).encode()).hexdigest()


def seen_parts(tool: ServerTool) -> dict[str, Any]:
    """Return the parts of a tool's definition that a user sees, by the name of the field."""
    parts: dict[str, Any] = tool.definition.model_dump(
        mode="json", include=_SEEN_FIELDS, exclude_none=True
    )
    return parts


def _part_digests(tool: ServerTool) -> dict[str, str]:
    digests: dict[str, str] = {}
    for field, part in seen_parts(tool).items():
        digests[field] = hashlib.sha256(_ENCODER.encode(part).encode()).hexdigest()
    return digests


def _key(digest: str) -> str:
    return f"{_FOLDER}/{digest}.json"


def _parsed(content: bytes | None) -> ServerRecord | None:
    try:
        return ServerRecord.model_validate_json(content) if content else None
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool that differs from what the user approved.

    Attributes:
        name: The tool's name at its server.
        after: The tool as the server has listed it last, which an approval approves.
        lines: What changed: the description as it was and is, and other parts as they are now.
    """

    name: str
    after: ApprovedTool
    lines: tuple[str, ...]


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
    records = ServerRecords(config.files_folder)
    records.load(config.servers.values())
    return records


def _changed(before: ApprovedTool, tool: ServerTool) -> ChangedTool:
    after, now = ApprovedTool.of(tool), seen_parts(tool)
    names = {name for name, _ in before.digests.items() ^ after.digests.items()}
    lines: list[str] = []
    if before.description != after.description:
        names.discard("description")  # both are shown
        lines += [f"- {before.description}", f"+ {after.description}"]
    for name in sorted(names):
        part = json.dumps(now.get(name), ensure_ascii=False)
        lines.append(f"+ {name.replace('_', ' ')}: {visible(part)}")
    inert_lines = tuple(one_line(line, max_chars=_MAX_CHARS) for line in lines)
    return ChangedTool(name=tool.name, after=after, lines=inert_lines)


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
