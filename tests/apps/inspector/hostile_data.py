"""Fill a store and a trace with hostile texts, and read the pages about them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from starlette.testclient import TestClient

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from llm_common.pointers.records import meta_bytes
from tests.apps.inspector.test_run_page import Shape, story_of

TOKEN = "0123456789abcdef-token"
HOST = "http://127.0.0.1:8321"
_UNREAD = re.compile(r"<section class=notes.*?</section>| <small>so far</small>")
_ID = re.compile(r"[0-9a-f]{12}|\d{8}T\d+Z-[0-9a-f]+")


def browser(inspector: Inspector) -> TestClient:
    """Return a client that has opened the address with the token."""
    client = TestClient(inspector.app(token=TOKEN, port=8321), base_url=HOST)
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


async def fill(folder: Path, texts: Sequence[str]) -> None:
    """Fill a store and a trace with texts, as another program could write them."""
    store = FileContextPointerStore(folder / "store", durability="rename")
    for number, text in enumerate(texts):
        saved = await store.save(
            query_id="q",
            task_id="1",
            tool_name="tool",
            args={"n": number},
            result={"text": text},
            ttl_s=60,
        )
        fields = {
            "tool_name": text,
            "summary": text,
            "digest": f"{text}; {text}",
            "args": {text[:40]: text},
        }
        times = {"created_at": text, "expires_at": text, "task_id": text, "source_urls": [text]}
        changed = saved.model_copy(update={**fields, **(times if number % 2 else {})})
        (folder / "store" / "q" / f"{saved.pointer_id}.meta.json").write_bytes(meta_bytes(changed))
    await story_of(texts, folder)


def pages(client: TestClient, *addresses: str) -> Iterator[tuple[str, str]]:
    """Yield the addresses without ids and the pages, and those of every fourth pointer.

    Notes on unreadable files are removed.
    """
    todo = [*addresses]
    while todo:
        address = todo.pop(0)
        text = client.get(address).raise_for_status().text
        yield _ID.sub("ID", address), _UNREAD.sub("", text)
        if address == "/queries/q":
            todo += [link for link in Shape(text).addresses if _ID.search(link)][::4]
