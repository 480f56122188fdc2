"""`Draft`: everything of a pointer that is known before the store gives it an id and a time."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

from llm_common.pointers.pointer import (
    ContextPointer,
    call_digest_of,
    describe_result,
    digest_of,
    summary_line,
    text_digest,
)
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import Json, json_text, stable_json, to_plain
from llm_common.text.encoding import Encoded, encode_json
from llm_common.text.slices import changed

__all__ = ["MAX_ARGS_BYTES", "MAX_SOURCE_URLS", "Draft", "told_of"]

MAX_ARGS_BYTES = 8_192
MAX_SOURCE_URLS = 50

_URL = re.compile(r"https?://[^\s<>\"\x00-\x1f\x7f\ud800-\udfff]{1,2000}", re.IGNORECASE)
_KEPT_ARGS = 24
_KEPT_CHARS = 120


@dataclass(frozen=True)
class Draft:
    """A call and its result, encoded and described; made without touching the store."""

    query_id: str
    task_id: str | None
    tool_name: str
    args: dict[str, Json]
    args_sha256: str
    call_sha256: str
    payload: bytes
    fits_64_bits: bool
    summary: str
    digest: str
    source_urls: list[str]

    @classmethod
    def of(
        cls,
        *,
        query_id: str,
        task_id: str | None,
        tool_name: str,
        args: Mapping[str, Any],
        result: object,
        source_urls: Iterable[str] | None,
        max_result_bytes: int,
        redactor: Redactor,
        redact_results: bool,
        small: bool = False,
    ) -> "Draft":
        """The draft of a call, a snapshot that later changes of `args` and `result` do not reach.

        Nothing that the redactor knows for a secret is in it, but for the result, unless that is to be redacted too.

        Raises:
            UnserialisableError: JSON cannot stand for the arguments or the result, or others change it meanwhile.
            ResultTooLargeError: The result takes more than `max_result_bytes`.
        """
        plain = to_plain(dict(args))
        args_json = encode_json(plain, small=small).data
        stable_args = stable_json(args)
        shown = redactor.data(plain, encoded=args_json)
        assert isinstance(shown, dict)
        told = told_of(result, redactor, redact_results=redact_results, max_bytes=max_result_bytes)
        encoded = encode_json(told, max_bytes=max_result_bytes, small=small)
        digest, web_urls = _description(encoded, source_urls, redactor)
        return cls(
            query_id=query_id,
            task_id=task_id,
            tool_name=tool_name,
            args=_cut(shown, size_bytes=len(args_json if shown is plain else encode_json(shown).data)),
            args_sha256=text_digest(stable_args),
            call_sha256=call_digest_of(stable_args, tool_name=tool_name, query_id=query_id, task_id=task_id),
            payload=encoded.data,
            fits_64_bits=encoded.fits_64_bits,
            summary=summary_line(tool_name=redactor.text(tool_name), args=shown),
            digest=digest,
            source_urls=web_urls,
        )

    @cached_property
    def payload_sha256(self) -> str:
        """SHA-256 of the payload; taken when first asked for, best beside the event loop."""
        return hashlib.sha256(self.payload).hexdigest()

    @property
    def short_id(self) -> str:
        """The id of the call: 12 digits."""
        return self.call_sha256[:12]

    @property
    def long_id(self) -> str:
        """The id of the call when another call owns the short one: 16 digits."""
        return self.call_sha256[:16]

    def is_of(self, pointer: ContextPointer) -> bool:
        """Whether the pointer stands for this very call, whatever its id."""
        return (self.tool_name, self.task_id, self.query_id, self.args_sha256) == (
            pointer.tool_name,
            pointer.task_id,
            pointer.query_id,
            pointer.args_sha256 or digest_of(pointer.args),
        )

    def pointer(
        self, *, pointer_id: str, created_at: str, result_path: str, expires_at: str | None, pinned: bool
    ) -> ContextPointer:
        """The pointer under that id."""
        return ContextPointer(
            pointer_id=pointer_id,
            query_id=self.query_id,
            task_id=self.task_id,
            tool_name=self.tool_name,
            args=self.args,
            created_at=created_at,
            summary=self.summary,
            result_path=result_path,
            source_urls=self.source_urls,
            result_bytes=len(self.payload),
            result_sha256=self.payload_sha256,
            digest=self.digest,
            args_sha256=self.args_sha256,
            expires_at=expires_at,
            pinned=pinned,
            result_fits_64_bits=self.fits_64_bits,
        )


def _cut(args: dict[str, Json], *, size_bytes: int) -> dict[str, Json]:
    """The arguments themselves, or the beginnings of the first 24 when all of them take over 8 KB."""
    if size_bytes <= MAX_ARGS_BYTES:
        return args
    return {key[:_KEPT_CHARS]: _beginning(value) for key, value in islice(args.items(), _KEPT_ARGS)}


def _beginning(value: Json) -> Json:
    text = value if isinstance(value, str) else json_text(value)
    if len(text) <= _KEPT_CHARS:
        return value
    return text[: _KEPT_CHARS - 1] + "…"


def told_of(result: object, redactor: Redactor, *, redact_results: bool, max_bytes: int) -> object:
    """The result as it may be told: without secrets where results are redacted, else those of a failed tool's error.

    Raises:
        UnserialisableError: JSON cannot stand for the result.
        ResultTooLargeError: It takes more than `max_bytes`.
    """
    told = _without_secret_error(result, redactor)
    if not redact_results:
        return told
    whole = to_plain(told)
    return redactor.data(whole, encoded=encode_json(whole, max_bytes=max_bytes).data)


def _without_secret_error(result: object, redactor: Redactor) -> object:
    """The result of a tool that failed with the secrets out of its `error`; any other result as it is."""
    error = getattr(result, "__dict__", {}).get("error")
    if not isinstance(error, str) or redactor.text(error) == error:
        return result
    plain = to_plain(result)
    return plain | {"error": redactor.text(error)} if isinstance(plain, dict) else plain


def _description(encoded: Encoded, source_urls: Iterable[str] | None, redactor: Redactor) -> tuple[str, list[str]]:
    """The digest of a result and its web addresses, read from the value itself, which others may change meanwhile."""
    try:
        digest = describe_result(encoded.value, size_bytes=len(encoded.data), redactor=redactor)
        return digest, _web_urls(source_urls, encoded.value, redactor)
    except (IndexError, RuntimeError) as exc:
        raise changed() from exc


def _web_urls(named: Iterable[str] | None, result: object, redactor: Redactor) -> list[str]:
    """The web addresses that the caller names, then those that the result lists as its `source_urls`, each once."""
    listed = result.get("source_urls") if isinstance(result, dict) else None
    urls = chain(named or (), listed if isinstance(listed, list | tuple) else ())
    kept = (redactor.text(url) for url in urls if isinstance(url, str) and _URL.fullmatch(url))
    return list(islice(dict.fromkeys(kept), MAX_SOURCE_URLS))
