"""How long after a server sends the first piece of an answer `Answering.stream` shows it.

A server on loopback in another process writes the time into the first piece and continues
after a pause. The time until that piece comes out of the stream is compared with a bare socket that
reads the same bytes: the floor.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from contextlib import aclosing
from multiprocessing.connection import Connection

from llm_common.agents import Answering, InMemoryContextPointerStore, ToolContextManager
from llm_common.core import LLMConfig, OpenAICompatibleClient

LIMIT_MS = 50
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


def piece(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode() + b"\n\n"


async def serve(told: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        writer.write(HEAD)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(piece(f"{time.monotonic_ns()} "))
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(piece("and the rest.", "stop") + b"data: [DONE]\n\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_server(told: Connection) -> None:
    asyncio.run(serve(told))


async def shown_after_ms(client: OpenAICompatibleClient, manager: ToolContextManager) -> float:
    async with aclosing(Answering().stream(client, manager, query="What is new?")) as parts:
        async for part in parts:
            return (time.monotonic_ns() - int(str(part))) / 1e6
    raise AssertionError("nothing was streamed")


async def read_after_ms(port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    event = await reader.readuntil(b"\n\n")
    now = time.monotonic_ns()
    writer.close()
    return (
        now - int(json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["content"])
    ) / 1e6


async def measure(port: int, rounds: int) -> tuple[list[float], list[float]]:
    manager = ToolContextManager(pointer_store=InMemoryContextPointerStore())
    await manager.save_context("news", {}, "Nothing is new.")
    config = LLMConfig(base_url=f"http://127.0.0.1:{port}/v1", default_model="m")
    async with OpenAICompatibleClient(config) as client:
        await shown_after_ms(client, manager)  # imports and tokenizer
        ours = [await shown_after_ms(client, manager) for _ in range(rounds)]
    return ours, [await read_after_ms(port) for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    ours_end, server_end = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=run_server, args=(server_end,), daemon=True
    )
    server.start()
    try:
        ours, floor = asyncio.run(measure(ours_end.recv(), rounds))
    finally:
        server.terminate()
    for name, times in (("Answering.stream", ours), ("a bare socket", floor)):
        p95 = statistics.quantiles(times, n=20)[-1]
        print(
            f"{name}: first piece {statistics.median(times):.2f} ms after the server's (p50), "
            f"{p95:.2f} ms (p95)"
        )
    if statistics.median(ours) > LIMIT_MS:
        sys.exit(f"the first piece comes more than {LIMIT_MS} ms after the server's")


if __name__ == "__main__":
    main()
