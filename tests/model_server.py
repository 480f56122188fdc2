"""Serve a model on loopback, as the endpoints of OpenAI, Anthropic and Google do."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.wire_formats import Answer, Json, wire_format_of, write_answer

Model = Callable[[str, Json], Answer]
"""Returns the answer to a request, for the name of its format and its body."""


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """Serve a model, and yield the address without a path."""
    handler = type("Handler", (_Handler,), {"model": staticmethod(model)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Any  # a `Model`, which mypy would take for a method

    def do_HEAD(self) -> None:
        self._send_json({})

    def do_GET(self) -> None:
        listed = {"id": "scripted", "object": "model", "created": 0, "owned_by": "tests"}
        self._send_json({"object": "list", "data": [listed], "models": []})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        wire_format = wire_format_of(self.path)
        if wire_format is None:  # such as a count of tokens
            self._send_json({"input_tokens": 100})
            return
        body = json.loads(content)
        answer = self.model(wire_format, body)
        document, events = write_answer(wire_format, str(body.get("model")), answer)
        # Gemini says so in the path.
        if not body.get("stream") and ":stream" not in self.path:
            self._send_json(document)
            return
        stream = ""
        for name, event in events:
            if name:
                stream += f"event: {name}\n"
            stream += f"data: {json.dumps(event)}\n\n"
        if wire_format == "chat":
            stream += "data: [DONE]\n\n"
        self._send("text/event-stream", stream.encode())

    def _send_json(self, document: object) -> None:
        self._send("application/json", json.dumps(document).encode())

    def _send(self, content_type: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")  # no client keeps one beyond its test
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
