"""Sends a stored result as a file that a browser saves and never shows."""

import re
from typing import Final

from starlette.responses import Response

from llm_common.agents import ContextPointer
from llm_common.text import decode_json

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS: Final = 60


def download(pointer: ContextPointer, payload: bytes) -> Response:
    """Return a result as an attachment: a text as it is, anything else as the stored JSON.

    Its type is one that no browser shows or runs, and its name has no character of the tool that
    could leave the folder or the header.
    """
    content, ending = payload, "json"
    # Only a stored text begins with a quote. Others need not be decoded.
    if payload.startswith(b'"'):
        text = decode_json(payload)
        if isinstance(text, str):
            content, ending = text.encode("utf-8", "replace"), "txt"
    tool = _UNSAFE.sub("_", pointer.tool_name)[:_MAX_NAME_CHARS]
    name = f"{tool}-{pointer.pointer_id}.{ending}"
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
