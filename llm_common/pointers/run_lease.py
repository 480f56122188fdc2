"""`only_run`: one run of a query in a session at a time, over all users of a store."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from llm_common._threads import in_thread
from llm_common.errors import LockTimeoutError, RunBusyError, StoreError
from llm_common.pointers.store import ContextPointerStore
from llm_common.storage.blob import always_held

_log = logging.getLogger(__name__)


@asynccontextmanager
async def only_run(
    store: ContextPointerStore, *, session_id: str, query_id: str
) -> AsyncIterator[Callable[[], bool]]:
    """Run the block as the only run of a query in a session.

    The lease ends with its process, and on an object store at most 60 seconds later. If the store
    cannot be written, the block runs without a lease, and a warning says so: a run does not need
    its store.

    Yields:
        A function that returns whether no other run has taken the lease over. It may ask the store.

    Raises:
        RunBusyError: If another run of the query has begun and not ended. The block does not run.
    """
    # No id has a line break, so no two pairs of ids have the same text.
    digest = hashlib.sha256(f"{session_id}\n{query_id}".encode()).hexdigest()
    lease = store.records.blobs.lease(digest[:32])
    with ExitStack() as stack:
        is_held: Callable[[], bool] = always_held
        taking = asyncio.ensure_future(in_thread(stack.enter_context, lease))
        try:
            is_held = await asyncio.shield(taking)
        except LockTimeoutError as exc:
            raise RunBusyError(
                f"Another run of the query {query_id} has begun and not ended. Wait for it, or "
                "end it and resume"
            ) from exc
        except StoreError as exc:
            _log.warning(
                "the store took no lease (%s), so another run of the same query is not noticed",
                type(exc).__name__,
            )
        finally:
            # The thread of a cancelled run may still take the lease, which the stack gives back.
            await asyncio.wait({taking})
        try:
            yield is_held
        finally:
            # Shielded, since a cancelled run has to give its lease back too.
            await asyncio.shield(in_thread(_give_back, stack.pop_all()))


def _give_back(leases: ExitStack) -> None:
    try:
        leases.close()
    except StoreError as exc:
        # The result of the run counts more, and the lease ends by itself.
        _log.warning("the store did not take a lease back (%s)", type(exc).__name__)
