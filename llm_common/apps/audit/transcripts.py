"""Reads the sessions that agents record: Claude Code, Codex, and chat completions.

Each record is recognized by its own fields, so a file needs no name and no extension. All become
messages that `history` reads, with the compactions between them. A record that is no message is
counted by its kind.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import orjson

from llm_common.errors import UnserialisableError
from llm_common.history import HistoryMessage, read_messages
from llm_common.text import stable_json

Record = Mapping[str, Any]

_SUFFIXES: Final = (".jsonl", ".json", ".traj")
# What the host wrote under the user's name: `<system-reminder>`, `<environment_context>`.
_OF_HOST = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<[a-z]+[-_][a-z_-]+>.*</[a-z]+[-_][a-z_-]+>\s*$).*", re.DOTALL
)
# Reasoning is no part of later prompts, and its signature is no text.
_REASONING: Final = ("thinking", "redacted_thinking")
# In the first request after a compaction: the reply to the request before it, and a summary.
_MAX_NEW_REPLIES: Final = 2


@dataclass(eq=False)
class Stretch:
    """The messages between two compactions.

    Attributes:
        kept: What the compaction before it left of the prompt.
        messages: The messages that followed.
        is_readable: Whether `kept` has all that the compaction left. A summary may be encrypted.
    """

    kept: Sequence[HistoryMessage] = ()
    messages: list[HistoryMessage] = field(default_factory=list)
    is_readable: bool = True

    @property
    def prompt(self) -> list[HistoryMessage]:
        """Return the prompt at the end of the stretch."""
        return [*self.kept, *self.messages]

    @cached_property
    def calls(self) -> list[int]:
        """Return where in the prompt a reply of the model begins. Hosts record it in parts."""
        roles = ["", *(message.role for message in self.prompt)]
        added = range(len(self.kept), len(self.prompt))
        # The role of a message follows that of the message before it.
        return [index for index in added if roles[index] != "assistant" == roles[index + 1]]

    @property
    def first_prompt(self) -> list[HistoryMessage]:
        """Return the prompt of the first call to the model, or what there is of it."""
        return self.prompt[: self.calls[0]] if self.calls else self.prompt


@dataclass(slots=True)
class Transcript:
    """A recorded session.

    Attributes:
        name: Its file, with the number of the session if the file has several.
        host: Who recorded it.
        stretches: Its messages, in a new stretch after each compaction.
        other_records: How many records are no messages, by kind.
    """

    name: str
    host: str = ""
    stretches: list[Stretch] = field(default_factory=lambda: [Stretch()])
    other_records: Counter[str] = field(default_factory=Counter)


def transcripts_in(path: Path) -> Iterator[Transcript]:
    """Yield the sessions of a file, or of the files in a folder and its folders.

    A file without a session, or that cannot be read, yields one without messages.
    """
    files = [path]
    if path.is_dir():
        # A pipe in a folder would wait for its writer.
        files = sorted(
            file for file in filter(Path.is_file, path.rglob("*")) if file.suffix in _SUFFIXES
        )
    for file in files:
        reader = _Reader(file)
        with suppress(OSError):  # a file of somebody else
            for record in _records(file):
                reader.read(record)
        yield from reader.transcripts


def _records(file: Path) -> Iterator[Any]:
    """Yield the one document of JSON, or the lines of JSONL. None is not JSON."""
    data = file.read_bytes()
    try:
        yield orjson.loads(data)
    except orjson.JSONDecodeError:
        for line in filter(bytes.strip, BytesIO(data)):
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                yield None  # such as the last line, while it is being written


class _Reader:
    """Adds the records of one file to its transcripts."""

    def __init__(self, file: Path) -> None:
        self.transcripts = [Transcript(str(file))]
        self._is_read = False  # whether the record is part of a prompt
        # Claude Code names the first message that a compaction kept by the id of its line.
        self._kept_from: object = None
        self._position_of: dict[object, int] = {}
        self._is_sidechain: object = None
        self._request: list[Record] = []  # the last one

    @property
    def _stretch(self) -> Stretch:
        return self.transcripts[-1].stretches[-1]

    def read(self, record: Any) -> None:
        """Add the messages of a record, or count it by its kind."""
        kind = "not JSON" if record is None else "unknown"
        self._is_read = False
        try:
            match record:
                case [{"role": _}, *_]:
                    self._read_request(record)
                case (
                    {"messages": [{"role": _}, *_] as messages}
                    | {"body": {"messages": [{"role": _}, *_] as messages}}
                    | {"request": {"body": {"messages": [{"role": _}, *_] as messages}}}
                    | {"history": [{"role": _}, *_] as messages}
                    | {"traj": [{"role": _}, *_] as messages}
                ):
                    self._read_request(messages)
                case [_, *_]:
                    for item in record:
                        self.read(item)
                    return
                case {"type": str(kind)}:
                    self._read_line(kind, record)
                case {"role": _}:
                    self._add("chat completions", record)
        except (AttributeError, KeyError, TypeError, UnserialisableError):
            pass  # hosts change their forms from release to release
        if not self._is_read:
            self.transcripts[-1].other_records[kind] += 1

    def _read_line(self, kind: str, record: Record) -> None:
        """Add the messages of a line of Claude Code or Codex."""
        match record:
            case {"payload": payload}:
                self._read_codex(kind, payload)
            case {"type": "user" | "assistant", "message": {"content": content}}:
                self._read_claude(record, content)
            case {"attachment": {"type": "prompt_snapshot"}}:
                pass  # instructions and definitions of tools, again after each change
            case {"type": "attachment", "attachment": attachment}:
                self._add("Claude Code", {"role": "system", "content": stable_json(attachment)})
            case {"compactMetadata": metadata}:
                self._kept_from = (metadata.get("preservedSegment") or {}).get("headUuid")
            case _:  # Codex wrote its items without `payload` until September 2025
                self._add("Codex", *_codex_messages(record))

    def _add(self, host: str, *raw_messages: Record) -> None:
        for raw in raw_messages:
            [message] = read_messages([raw])
            if len(message.calls) < len(raw.get("tool_calls") or ()):
                raise TypeError("calls of another form")
            self._stretch.messages.append(message)
            self.transcripts[-1].host = host
            self._is_read = True

    def _compact(self, kept: Sequence[HistoryMessage], *, is_readable: bool = True) -> None:
        self.transcripts[-1].stretches.append(Stretch(kept, is_readable=is_readable))
        self._position_of = {}
        self._is_read = True

    # --- chat completions: requests, each with its whole prompt

    def _read_request(self, messages: list[Record]) -> None:
        before = self._request
        if messages == before[: len(messages)]:
            messages = before  # the user took something back, and it was sent
        start = len(before)
        if messages[:start] != before:
            common = [index for index, message in enumerate(messages) if message in before]
            added = [message["role"] for message in messages if message not in before]
            # Another session has no message in common, or only some words of courtesy among its
            # own replies. Another branch is as long as this one.
            is_same = any(messages[index]["role"] != "system" for index in common)
            is_same = is_same and added.count("assistant") <= _MAX_NEW_REPLIES
            if is_same and len(stable_json(messages)) < len(stable_json(before)):
                start = common[-1] + 1
                if messages[:start] == before[:start]:  # the summary follows what was kept
                    start = len(messages) - 1
                self._compact(read_messages(messages[:start]))
            else:
                name = f"{self.transcripts[0].name}#{len(self.transcripts) + 1}"
                self.transcripts.append(Transcript(name))
                start = 0
        self._request = messages
        for message in messages[start:]:
            self.read(message)
        self._is_read = True

    # --- Claude Code: a line for each block

    def _read_claude(self, record: Record, content: object) -> None:
        is_sidechain = record.get("isSidechain", False)
        if self._is_sidechain is None:
            self._is_sidechain = is_sidechain
        if is_sidechain != self._is_sidechain:
            return  # of a sub-agent, which has its own prompt, and today its own file
        role = "system" if record.get("isMeta") else record["type"]
        messages = [*_by_author(role, content)]
        if record.get("isCompactSummary"):
            start = self._position_of.get(self._kept_from)
            kept = [] if start is None else self._stretch.messages[start:]
            self._compact(
                [*read_messages(messages), *kept],
                is_readable=start is not None or self._kept_from is None,
            )
            return
        self._add("Claude Code", *messages)
        self._position_of[record["uuid"]] = len(self._stretch.messages) - 1

    # --- Codex: items of the Responses API

    def _read_codex(self, kind: str, payload: Record) -> None:
        if kind == "response_item":
            self._add("Codex", *_codex_messages(payload))
        elif kind == "compacted":
            items = payload.get("replacement_history")
            if items is None:  # older releases kept what the user said
                kept = [message for message in self._stretch.prompt if message.is_question]
                kept += read_messages([{"role": "user", "content": payload["message"]}])
            else:  # with the summary
                kept = read_messages([raw for item in items for raw in _codex_messages(item)])
            self._compact(kept, is_readable="encrypted_content" not in stable_json(items))


def _by_author(role: str, content: Any) -> Iterator[Record]:
    """Yield each block that a model reads as a message. What the host wrote is the system's."""
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        kind = str(block.get("type"))  # `input_text` of Codex is a text too
        is_of_host = role == "user" and kind.endswith("text") and _OF_HOST.fullmatch(block["text"])
        if kind not in _REASONING:
            yield {"role": "system" if is_of_host else role, "content": [block]}


def _codex_messages(item: Record) -> Iterator[Record]:
    """Yield an item of the Responses API as messages. A model reads no text of some."""
    kind = str(item.get("type"))
    if kind == "message":
        yield from _by_author(item["role"], item["content"])
    elif kind.endswith("_call"):
        args = item.get("arguments") or item.get("input") or item.get("action")
        function = {"name": item.get("name") or kind, "arguments": args}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind.endswith("_call_output"):
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
