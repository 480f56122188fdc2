"""Let many workers save into one object store without a lock, and list all results.

    python examples/many_workers.py [URL]

Run `pip install '.[object-store]'` in a checkout first. With the URL of a bucket
(s3://bucket/prefix, gs://…, az://…) the workers are processes and could be machines. Credentials
come from the environment. Without a URL they are threads on a store in memory. No model is called.
"""

import asyncio
import sys
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context

from llm_common.agents import ObjectContextPointerStore

IN_MEMORY = "memory:///"
WORKERS = 4
PAGES = 3


@cache
def open_store(url: str) -> ObjectContextPointerStore:
    """Open the store, once per process."""
    return ObjectContextPointerStore.from_url(url)


async def work(url: str, worker: int) -> str:
    """Save the pages of a worker, and one status that all workers save."""
    save = partial(open_store(url).save, query_id="crawl")
    for page in range(PAGES):
        await save(
            tool_name="read_page",
            args={"worker": worker, "page": page},
            result=f"page {page} of {worker}",
        )
    await save(tool_name="status", args={}, result={"newest": worker})
    return f"worker {worker} saved {PAGES + 1} results"


def run_worker(url: str, worker: int) -> str:
    """Run a worker on its own event loop."""
    return asyncio.run(work(url, worker))


def pool_for(url: str) -> Executor:
    """Return threads if the store is in this process, else processes."""
    if url == IN_MEMORY:
        return ThreadPoolExecutor(WORKERS)
    return ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"))


def main(url: str) -> None:
    """Print what the workers did and what a reader finds."""
    with pool_for(url) as pool:
        print(*pool.map(partial(run_worker, url), range(WORKERS)), sep="\n")

    store = open_store(url)
    pointers = store.list(query_id="crawl")
    for pointer in pointers:
        print(pointer.pointer_id, pointer.summary, "->", store.load_result(pointer=pointer))
    print(
        f"{len(pointers)} results: {PAGES} from each of {WORKERS} workers, and the one status "
        f"that all of them saved"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else IN_MEMORY)
